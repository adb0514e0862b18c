"""The options of ``haversack verify``, by the sections of its help."""

from haversack.cli import options, workload_options
from haversack.cli.option_types import Seconds, Whole

WORKLOAD = [
    *workload_options.WORKLOAD,
    options.option(
        "Workload", "--list", "listing", about="List the built-in workloads.", is_flag=True
    ),
]
JUDGING = [
    options.option(
        "Verdict",
        "--strict",
        field="strict",
        about="Count facets that only warn as errors: side effects, unexpected recompute counts, "
        "no memory saved, values that differ inside a tolerance, a plan that needs more than it "
        "predicts.",
        is_flag=True,
    ),
    options.option(
        "Verdict",
        "--waive",
        field="waivers",
        about="Facet that may differ, such as buffers; may be repeated. It is reported, and left "
        "out of the verdict.",
        metavar="FACET",
        multiple=True,
    ),
]
PLAN = [
    options.option(
        "Workload",
        "--plan",
        field="plan",
        about="Plan to verify, as haversack plan -o writes it: its blocks run as "
        "haversack.torch.apply has them, and a step of it is measured beside what it predicts.",
        metavar="FILE",
    ),
]
WEIGHTS = [
    options.option(
        "Workload",
        "--weights",
        field="weights",
        about="Weights to load before the runs: a safetensors file, or a folder of them; with "
        "--server an absolute path of its machine, in a folder of its --weights-dir. Default: "
        "those that the workload makes.",
        metavar="PATH",
    ),
]
REGIONS = [
    options.option(
        "Regions",
        "--region",
        "regions",
        field="regions",
        about="Module to wrap as a region, such as layers.0; may be repeated. Default: those that "
        "the workload names, else the calls of checkpoint that the model makes, and if it makes "
        "none the blocks in its ModuleLists.",
        metavar="MODULE",
        multiple=True,
    ),
    options.option(
        "Regions",
        "--use-reentrant",
        field="use_reentrant",
        about="Use PyTorch's reentrant variant for the modules that are wrapped.",
        is_flag=True,
    ),
    options.option(
        "Regions",
        "--preserve-rng-state/--no-preserve-rng-state",
        field="preserve_rng_state",
        about="Restore torch's random state in replays or not, whatever a call says. Default: as "
        "each call says.",
        default=None,
    ),
    options.option(
        "Regions",
        "--early-stop/--no-early-stop",
        field="early_stop",
        about="End a replay once it has made what was asked for, or never, whatever a call says. "
        "Default: as each call says.",
        default=None,
    ),
    options.option(
        "Regions",
        "--determinism-check",
        field="determinism_check",
        about="PyTorch's own check of what a replay saves, whatever a call says: default (shapes, "
        "dtypes, devices) or none. Default: as each call says.",
        metavar="NAME",
        default="",
    ),
]
SPREAD = [
    options.option(
        "Ranks",
        "--shard",
        field="world.sharding",
        about="Run on several ranks: ddp or fsdp2, processes of the CPU over gloo, or with "
        "--device cuda:0 on a GPU each over NCCL. Plain and checkpointed are compared on each, "
        "and the plain run with one process. Without it one process.",
        metavar="NAME",
    ),
    options.option(
        "Ranks",
        "--world-size",
        field="world.size",
        about="Number of ranks, 2 or 4. Needed with --shard.",
        type=Whole(),
    ),
]
RESUME = [
    options.option(
        "Resume",
        "--resume",
        field="resume world.size",
        about="Stop training, save it to disk, go on from the files, and compare with the run that "
        "was not stopped: 2:4 saves on 2 ranks and goes on with 4 (each 1, 2 or 4), by fsdp2 "
        "unless --shard says ddp. This is about training checkpoints on disk, and no activation "
        "checkpoint. Without it the job is about those.",
        metavar="RANKS",
    ),
    options.option(
        "Resume",
        "--saved-as",
        field="saved_as resume.saved_as",
        about="Form of the training checkpoint: sharded (each rank writes its shards) or full "
        "(rank 0 writes whole tensors). Default: sharded.",
        metavar="FORM",
    ),
    options.option(
        "Resume",
        "--steps-before",
        field="steps_before resume.steps_before",
        about="Training steps before the stop. Default: 3.",
        type=Whole(),
    ),
    options.option(
        "Resume",
        "--steps-after",
        field="steps_after resume.steps_after",
        about="Training steps after it that are compared. Default: 3.",
        type=Whole(),
    ),
    options.option(
        "Resume",
        "--leave-out-each",
        field="leave_out_each resume.leave_out_each",
        about="Also leave out one kind of state after the other of those that the files hold, each "
        "in a run of its own, and say what it changes.",
        is_flag=True,
    ),
]
JOB = [
    options.option(
        "Job",
        "--seed",
        field="seed",
        about="Seed of torch, python and numpy in every run. Default: 0.",
        type=Whole(),
        default=0,
    ),
    options.option(
        "Job",
        "--schedule",
        field="schedule",
        about="Order of forwards and backwards: one-microbatch, two-microbatches (two forwards, "
        "then two backwards), two-steps (with the optimizer between) or backward-in-thread (in a "
        "helper thread, on the CPU). Default: the workload's own, which --list tells, else "
        "one-microbatch.",
        metavar="NAME",
    ),
    options.option(
        "Job",
        "--device",
        field="device",
        about="Device of the job: cpu, cuda:0, ... Default: cpu.",
        metavar="NAME",
        default="",
    ),
    options.option(
        "Job",
        "--device-count",
        field="device_count",
        about="GPUs of the job's one process, from --device on, for a model that its factory puts "
        "on several. Default: 1.",
        type=Whole(),
    ),
    options.option(
        "Job",
        "--threads",
        field="threads",
        about="Threads of operators in every run. Default: 1.",
        type=Whole(),
    ),
    options.option(
        "Job",
        "--deterministic-algorithms",
        field="deterministic_algorithms",
        about="Run under torch.use_deterministic_algorithms: an operation that has none raises.",
        is_flag=True,
    ),
    options.option(
        "Job",
        "--memory",
        field="limits.memory_bytes",
        about="Memory that each process of the job may take, such as 4GiB. Default: the server's "
        "own limit, if it has one.",
        metavar="SIZE",
    ),
    options.option(
        "Job",
        "--deadline",
        field="limits.deadline_ns",
        about="Seconds that the job may run before it is killed. Default: 300.",
        type=Seconds(),
    ),
    options.option(
        "Job",
        "--job-id",
        field="job_id",
        about="Id of the job; the same id attaches to it again, or gives its stored report. "
        "Default: a new one.",
        metavar="ID",
        default="",
    ),
    options.option(
        "Job",
        "--detach",
        field="keep_after_disconnect",
        about="Leave once the server has the job, which then goes on without a reader; haversack "
        "jobs shows it. With --server only.",
        is_flag=True,
    ),
]
