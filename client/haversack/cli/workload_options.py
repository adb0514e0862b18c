"""The options that name code of the caller's, alike in every command that has it run."""

from haversack.cli.option_types import Names, option

WORKLOAD = [
    option(
        "Workload",
        "--workload",
        field="workload.name workload.entry_point workload",
        about="A built-in workload by name, or an entry point package.module:factory that returns "
        "a haversack.torch.Workload.",
        metavar="NAME",
    ),
    option(
        "Workload",
        "--args",
        field="workload.args_json",
        about="Keyword arguments of the factory, a JSON object such as '{\"layers\": 2}'.",
        metavar="JSON",
    ),
    option(
        "Workload",
        "--allow",
        field="allow",
        about="Dotted prefix of modules that may run, such as mypkg. (with its dot); may be "
        "repeated. Not with --server: a server's own configuration decides.",
        metavar="PREFIX",
        multiple=True,
    ),
]
BLOCKS = option(
    "Workload",
    "--blocks",
    field="blocks",
    about="Modules of the workload that are its blocks, such as encoder.0,encoder.1, or lists of "
    "them, such as layers,encoder.layer. Default: the children of its ModuleLists, else of its "
    "Sequentials, else its own.",
    type=Names(),
)
