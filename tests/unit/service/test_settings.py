"""What an operator may write, and what each wrong word is answered with."""

import pytest

from haversack.errors import InvalidRequestError
from haversack_server.service.settings import Settings, from_command_line, split_address


def refused(*arguments: str, **environment: str) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        from_command_line(arguments, environment)
    return caught.value


def test_a_service_has_defaults() -> None:
    process = from_command_line([], {})
    assert process.listen == "127.0.0.1:50051"
    assert process.settings.metrics_port == 9464
    assert process.settings.allow == ()
    assert process.settings.reflection
    assert process.settings.warm


def test_a_service_uses_a_cuda_device_unless_told_not_to() -> None:
    assert from_command_line([], {}).settings.cuda
    assert not from_command_line(["--cuda", "off"], {}).settings.cuda
    assert not from_command_line([], {"HAVERSACK_CUDA": "off"}).settings.cuda
    assert refused("--cuda", "on").field == "cuda"
    assert refused(HAVERSACK_CUDA="1").field == "cuda"


def test_reports_are_kept_in_memory_unless_a_folder_is_named() -> None:
    kept = from_command_line([], {}).settings
    assert (kept.state_dir, kept.keep_reports, kept.keep_days) == ("", 256, 30.0)
    environment = {"HAVERSACK_STATE_DIR": "/var/lib/haversack", "HAVERSACK_KEEP_DAYS": "0.5"}
    kept = from_command_line(["--keep-reports", "9"], environment).settings
    assert (kept.state_dir, kept.keep_reports, kept.keep_days) == ("/var/lib/haversack", 9, 0.5)
    assert refused("--keep-reports", "-1").field == "keep_reports"
    assert refused("--keep-reports", "10001").field == "keep_reports"
    assert refused("--keep-days", "nan").field == "keep_days"


def test_jobs_run_on_this_machine_unless_a_cluster_is_named() -> None:
    here = from_command_line([], {}).settings
    assert (here.executor, here.ray_address) == ("local", "")
    environment = {"HAVERSACK_EXECUTOR": "ray", "HAVERSACK_RAY_ADDRESS": "head:6379"}
    there = from_command_line([], environment).settings
    assert (there.executor, there.ray_address) == ("ray", "head:6379")
    assert refused("--executor", "slurm").field == "executor"
    assert refused("--ray-address", "head:6379").field == "ray_address"


def test_a_server_in_a_callers_process_has_none_of_the_extras() -> None:
    settings = Settings()
    assert not settings.cuda
    assert (settings.metrics_port, settings.reflection, settings.warm) == (None, False, False)


def test_an_option_wins_over_the_environment() -> None:
    environment = {"HAVERSACK_LISTEN": "0.0.0.0:1", "HAVERSACK_MAX_IN_FLIGHT": "3"}
    process = from_command_line(["--listen", "[::1]:0"], environment)
    assert process.listen == "[::1]:0"
    assert process.settings.max_in_flight == 3


def test_prefixes_may_be_repeated_or_separated_by_commas() -> None:
    given = from_command_line(["--allow", "a.", "--allow", "b."], {"HAVERSACK_ALLOW": "c."})
    assert given.settings.allow == ("a.", "b.")
    assert from_command_line([], {"HAVERSACK_ALLOW": "c.,d."}).settings.allow == ("c.", "d.")
    both = from_command_line(["--weights-dir", "/a", "--weights-dir", "/b"], {})
    assert both.settings.weights_dirs == ("/a", "/b")
    assert from_command_line([], {"HAVERSACK_WEIGHTS_DIR": "/c"}).settings.weights_dirs == ("/c",)


@pytest.mark.parametrize("port", ["65536", "-1", "x", "", "1.5", "\N{ARABIC-INDIC DIGIT ONE}"])
def test_what_is_no_port_is_refused_by_its_name(port: str) -> None:
    assert refused("--listen", f"127.0.0.1:{port}").field == "listen"
    assert refused(f"--metrics-port={port or 'x'}").field == "metrics_port"


@pytest.mark.parametrize(
    "address", ["50051", ":50051", "::1:50051", "[::1:50051", "", "unix:/a.sock"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    assert refused(f"--listen={address}").field == "listen"


def test_an_address_is_split_at_its_port() -> None:
    assert split_address("[::1]:8", "listen") == ("[::1]", 8)
    assert split_address("localhost:65535", "listen") == ("localhost", 65535)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--max-in-flight", "0"], "max_in_flight"),
        (["--grace", "-1"], "grace"),
        (["--grace", "nan"], "grace"),
    ],
)
def test_a_number_out_of_range_is_refused_by_its_name(arguments: list[str], field: str) -> None:
    assert refused(*arguments).field == field


def test_an_unknown_option_is_refused_in_one_sentence() -> None:
    assert str(refused("--workers", "3")) == "unrecognized arguments: --workers 3"
    assert "invalid int value: 'many'" in str(refused(HAVERSACK_MAX_IN_FLIGHT="many"))
