from exporter.attribution import workloads


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


def test_what_several_know_of_one_is_one_record() -> None:
    told = workloads.pod("team-a", "trainer-0", "main")
    seen = workloads.pod("team-a", "trainer-0", "main", uid="3f2a", container_id="4e1f")
    other = workloads.pod("team-a", "trainer-0", "main", uid="ffff")
    assert workloads.united([told, seen, other, workloads.user("ada")]) == {
        told.key: seen,
        "user/ada": workloads.user("ada"),
    }
