from hypothesis import example, given
from hypothesis import strategies as st

from exporter.attribution import workloads
from exporter.fleet.tenancy import MOST_CHARACTERS
from exporter.text import cleaned


def test_keys() -> None:
    assert workloads.pod("team-a", "trainer-0", "main").key == "pod/team-a/trainer-0/main"
    assert workloads.pod("team-a", "trainer-0").key == "pod/team-a/trainer-0"
    assert workloads.nameless_pod("3f2a").key == "pod/3f2a"
    assert workloads.slurm("4711").key == "slurm/4711"
    assert workloads.container("4e1f" * 16).key == "container/4e1f4e1f4e1f"
    assert workloads.container("4e1f" * 16, user="ada").key == "container/ada/4e1f4e1f4e1f"
    assert workloads.service("ollama.service").key == "service/ollama.service"
    assert workloads.service("jupyter.service", user="ada").key == "service/ada/jupyter.service"
    assert workloads.user("ada").key == "user/ada"


def test_pods_with_the_longest_names_are_told_apart_on_the_page() -> None:
    namespace, name, container = "n" * 63, "p" * 253, "c" * 63
    keys = {
        workloads.pod(namespace, name, container).key,
        workloads.pod(namespace, name, "d" * 63).key,
        workloads.pod(namespace, name).key,
    }
    assert len(keys) == len({cleaned(key) for key in keys}) == 3
    assert all(len(key) <= MOST_CHARACTERS for key in keys)
    assert workloads.pod(namespace, name, container).key == workloads.pod(namespace, name, container, uid="3f2a").key
    assert all(key.startswith(f"pod/{namespace}/ppp") for key in keys)


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique=True))
@example(["ada", "ada\x01"])
@example(["ada\x85", "ada\x9f"])
@example(["n" * 256, "n" * 257])
def test_the_page_shows_every_key_as_it_is_and_no_two_alike(names: list[str]) -> None:
    keys = [workloads.user(name).key for name in names]
    assert [cleaned(key) for key in keys] == keys
    assert len(set(keys)) == len(names)


def test_what_several_know_of_one_is_one_record() -> None:
    told = workloads.pod("team-a", "trainer-0", "main")
    seen = workloads.pod("team-a", "trainer-0", "main", uid="3f2a", container_id="4e1f")
    other = workloads.pod("team-a", "trainer-0", "main", uid="ffff")
    assert workloads.united([told, seen, other, workloads.user("ada")]) == {
        told.key: seen,
        "user/ada": workloads.user("ada"),
    }
