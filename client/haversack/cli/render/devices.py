"""GPUs on a page: a line for each, and what is known of it below."""

from haversack.cli.render.page import DIM, STRONG, Page
from haversack.units import format_bytes
from haversack.verify_devices import ListVerifyDevicesResponse, VerifyDevice


def draw_devices(page: Page, answer: ListVerifyDevicesResponse) -> None:
    """Draw GPUs, or the machines of a cluster."""
    if not (answer.devices or answer.notes):
        page.line(("no GPU: jobs run on the CPU", DIM))
    for device in answer.devices:
        page.line((device.device, STRONG), "  ", told_of(device))
        for note in device.notes:
            page.indented((note, DIM), depth=2)
    for note in answer.notes:
        page.line((note, DIM))


def told_of(device: VerifyDevice) -> str:
    """Tell what a GPU is, in one line."""
    facts = [
        device.name,
        "" if device.memory_bytes is None else format_bytes(device.memory_bytes),
        device.uuid,
        f"of {device.parent_uuid}" if device.parent_uuid else "",
        "" if device.compute_mode in ("", "DEFAULT") else f"compute mode {device.compute_mode}",
    ]
    return ", ".join(filter(None, facts))
