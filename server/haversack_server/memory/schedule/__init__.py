"""Sharding schedules: what each framework gathers, reduces and keeps, block by block."""
