"""What Estimate and Plan stand on: architectures, kernel profiles, option tables, the timeline."""
