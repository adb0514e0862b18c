"""``haversack devices``: the GPUs that Verify's jobs may have."""

import click

from haversack.cli import exits, options
from haversack.cli.calls import connected, deadline, print_answer
from haversack.cli.command import AnswerCommand


@click.command(cls=AnswerCommand, short_help="Which GPUs may Verify's jobs have?")
@options.all_of(options.SERVER)
def devices(*, server: str | None, timeout: float | None, as_json: bool) -> int:
    """List the GPUs that Verify's jobs may have, as they are at the moment.

    As NVIDIA's management library sees them: name, memory, UUID, and who else is on them. A job
    asks for one by its number here: haversack verify --device cuda:0. Of a cluster, its machines.

    \b
    Examples:
      haversack devices
      haversack devices --server localhost:50051 --json
    """
    with connected(server) as client:
        answer = client.list_verify_devices(**deadline(timeout))

    from haversack.cli.render.devices import draw_devices

    print_answer(answer, as_json, lambda page: draw_devices(page, answer))
    return exits.Exit.OK
