"""Ids of devices lead to the right GPU or partition, or to none; never to a wrong one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution.drm import render_nodes
from exporter.attribution.ids import Attributes, DeviceName, Place, Places, RenderNode
from exporter.attribution.source import Held, Question
from exporter.model import Device, PartitionSample

A100 = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
H100 = "GPU-bbbbbbbb-1111-1111-1111-111111111111"
MIG = "MIG-cccccccc-2222-2222-2222-222222222222"
MIG_OLD = f"MIG-{H100}/5/0"
MI300 = "00112233445566aa"
MI210 = "ffeeddccbbaa9988"


def mig(*instances: tuple[str, str, str]) -> tuple[PartitionSample, ...]:
    return tuple(PartitionSample(partition=name, uuid=uuid, profile=profile) for name, uuid, profile in instances)


WHOLE = Held(device=Device(vendor="nvidia", key=A100, vendor_uuid=A100, minor=0, pci_address="0000:07:00.0"))
PARTED = Held(
    device=Device(vendor="nvidia", key=H100, vendor_uuid=H100, minor=1, pci_address="0000:0f:00.0", index=0),
    partitions=mig(
        ("gi1", MIG, "1g.10gb"),
        ("gi2", "MIG-2", "2g.20gb"),
        ("gi5", MIG_OLD, "1g.10gb+me"),
        ("gi7ci0", "MIG-70", "1c.2g.20gb"),
        ("gi7ci1", "MIG-71", "1c.2g.20gb"),
    ),
)
CPX = Held(
    device=Device(vendor="amd", key=MI300, pci_address="0000:19:00.0", minor=128),
    partitions=tuple(PartitionSample(partition=str(number), uuid=f"cpx-{number}") for number in range(8)),
)
AMD = Held(device=Device(vendor="amd", key=MI210, pci_address="0001:c3:00.0", minor=136))
QUESTION = Question(held=(WHOLE, PARTED, CPX, AMD))
NODES = {
    "card1": RenderNode("0000:19:00.0", 0),
    "renderD128": RenderNode("0000:19:00.0", 0),
    "card9": RenderNode("0000:19:00.0", 3),
    "renderD131": RenderNode("0000:19:00.0", 3),
    "amdgpu_xcp_30": RenderNode("0000:19:00.0", 3),
    "amdgpu_xcp_39": RenderNode("0000:19:00.0", 9),
    "amdgpu_xcp_99": RenderNode("0000:99:00.0", 1),
    "card2": RenderNode("0001:c3:00.0"),
    "renderD136": RenderNode("0001:c3:00.0"),
    "card3": RenderNode("0000:aa:00.0"),
}
PLACES = Places(QUESTION, NODES)


@pytest.mark.parametrize(
    ("device_id", "place"),
    [
        (A100, Place(A100)),
        (A100.upper(), Place(A100)),
        (f"{A100}::0", Place(A100)),
        (f"{A100}::12::3", Place(A100)),
        (MIG, Place(H100, "gi1")),
        (f"{MIG}::7", Place(H100, "gi1")),
        (MIG_OLD, Place(H100, "gi5")),
        (f"MIG-{H100}/2/0", Place(H100, "gi2")),
        (f"MIG-{H100}/2/0::1", Place(H100, "gi2")),
        (f"MIG-{H100}/7/1", Place(H100, "gi7ci1")),
        ("nvidia0", Place(A100)),
        ("nvidia0/vgpu1", Place(A100)),
        ("nvidia1/gi1", Place(H100, "gi1")),
        ("nvidia1/gi1/vgpu0", Place(H100, "gi1")),
        ("0000:07:00.0", Place(A100)),
        ("00000000:07:00.0", Place(A100)),
        ("0000:19:00.0", Place(MI300, "0")),
        ("0001:C3:00.0", Place(MI210)),
        ("amdgpu_xcp_30", Place(MI300, "3")),
        ("AMDGPU_XCP.30", Place(MI300, "3")),
        ("renderD131", Place(MI300, "3")),
        ("renderD136", Place(MI210)),
        ("card1", Place(MI300, "0")),
        ("card2-0", Place(MI210)),
        ("cpx-5", Place(MI300, "5")),
    ],
)
def test_an_id_leads_to_its_place(device_id: str, place: Place) -> None:
    assert PLACES.find(device_id) == place


@pytest.mark.parametrize(
    "device_id",
    [
        "",
        "::",
        "::1",
        "GPU-00000000-9999-9999-9999-999999999999",
        "MIG-99999999-2222-2222-2222-222222222222",
        f"MIG-{A100}/1/0",
        f"MIG-{H100}/9/0",
        f"MIG-{H100}/7/2",
        "nvidia7",
        "nvidia1/gi9",
        "nvidia1/gi7",  # two compute instances
        "nvidia128",  # a minor number of another vendor's
        "nvidia0/gi1/vgpu0/more",
        "0000:07:00.1",
        "ffff0000:07:00.0",
        "amdgpu_xcp_31",
        "amdgpu_xcp_39",  # a partition that the card does not show
        "amdgpu_xcp_99",  # of a card that is not known
        "card3",
        "renderD0",
        "0",
        "gpu-0",
        f"{A100}-0",
    ],
)
def test_what_is_not_certain_leads_nowhere(device_id: str) -> None:
    assert PLACES.find(device_id) is None


def test_a_name_that_two_gpus_have_leads_to_neither() -> None:
    twins = [Held(device=Device(vendor="amd", key=key, vendor_uuid="00000000-0000")) for key in ("a", "b", "c")]
    places = Places(Question(held=tuple(twins)))
    assert places.find("00000000-0000") is None
    assert places.find("b") == Place("b")


def test_without_sysfs_the_render_node_of_a_card_is_its_minor_number() -> None:
    places = Places(QUESTION)
    assert places.find("renderD136") == Place(MI210)
    assert places.find("renderD128") == Place(MI300, "0")
    assert places.find("amdgpu_xcp_30") is None


@pytest.mark.parametrize(
    ("device", "attributes", "place"),
    [
        ("gpu-0", {"type": "gpu", "uuid": A100}, Place(A100)),
        ("gpu-0", None, None),
        ("gpu-0", {}, None),
        ("gpu-1-mig-1g10gb-19-0", {"type": "mig", "uuid": MIG, "parentUUID": H100}, Place(H100, "gi1")),
        ("gpu-1-mig-1g10gb-19-0", {"type": "mig", "uuid": "MIG-gone", "parentUUID": H100, "profile": "1g.10gb"}, None),
        # A device that is made when it is claimed has no UUID in its slice.
        ("gpu-1-mig-2g20gb-14-0", {"type": "mig", "parentUUID": H100, "profile": "2g.20gb"}, Place(H100, "gi2")),
        ("gpu-1-mig-2g20gb-14-0", {"type": "mig", "parentUUID": H100, "profile": "1c.2g.20gb"}, None),
        ("gpu-1-mig-2g20gb-14-0", {"type": "mig", "parentUUID": H100, "profile": "7g.80gb"}, None),
        ("gpu-1-mig-2g20gb-14-0", {"type": "mig", "parentUUID": "GPU-gone", "profile": "2g.20gb"}, None),
        ("gpu-1-mig-2g20gb-14-0", {"type": "mig", "resource.kubernetes.io/pciBusID": "0000:0f:00.0"}, None),
        ("gpu-0", {"type": "gpu", "resource.kubernetes.io/pciBusID": "0000:07:00.0"}, Place(A100)),
        ("gpu-0", {"resource.kubernetes.io/pciBusID": "0000:0F:00.0"}, None),
        ("gpu-0", {"type": "gpu", "uuid": "GPU-gone", "resource.kubernetes.io/pcieRoot": "pci0000:00"}, None),
        # Another card stands there since the slice was written.
        ("gpu-0", {"type": "gpu", "uuid": "GPU-gone", "resource.kubernetes.io/pciBusID": "0000:07:00.0"}, None),
    ],
)  # fmt: skip
def test_a_claimed_device_of_nvidias_driver_leads_to_its_place(
    device: str, attributes: Attributes | None, place: Place | None
) -> None:
    assert PLACES.find_claimed(DeviceName("gpu.nvidia.com", "node", device), attributes) == place


@pytest.mark.parametrize(
    ("device", "attributes", "place"),
    [
        ("gpu-1-128", None, Place(MI300, "0")),
        ("gpu-9-131", {"type": "amdgpu-partition", "pciAddr": "0000:19:00.0"}, Place(MI300, "3")),
        ("gpu-9-131", {"type": "amdgpu-partition", "renderIndex": 131}, Place(MI300, "3")),
        ("gpu-2-136", None, Place(MI210)),
        ("gpu-2-136", {"type": "amdgpu", "pciAddr": "0001:c3:00.0"}, Place(MI210)),
        ("gpu-0-spx-nps1", {"type": "amdgpu", "resource.kubernetes.io/pciBusID": "0000:19:00.0"}, Place(MI300)),
        # Which of its eight partitions was given is not told.
        ("gpu-0-cpx-nps4", {"type": "amdgpu-partition", "pciAddr": "0000:19:00.0"}, None),
        ("gpu-0-cpx-nps4", None, None),
        ("gpu-4-200", None, None),
    ],
)
def test_a_claimed_device_of_amds_driver_leads_to_its_place(
    device: str, attributes: Attributes | None, place: Place | None
) -> None:
    assert PLACES.find_claimed(DeviceName("gpu.amd.com", "node", device), attributes) == place


WORDS = "MIG- GPU- nvidia0 nvidia /gi1 /gi7 /vgpu0 :: ::1 0000:19:00.0 amdgpu_xcp_ 30 card renderD 128 / /7/1 - 0"
LIKELY = st.sampled_from([A100, H100, MIG, MI300, *WORDS.split()])
IDS = st.one_of(st.text(), st.lists(LIKELY, max_size=5).map("".join))
VALUES = st.one_of(IDS, st.integers())
NAMES = ["type", "uuid", "parentUUID", "profile", "pciAddr", "renderIndex", "resource.kubernetes.io/pciBusID"]


@st.composite
def questions(draw: st.DrawFn) -> Question:
    devices = []
    for key in draw(st.lists(IDS.filter(bool), unique=True, max_size=3)):
        device = Device(
            vendor=draw(st.sampled_from(["nvidia", "amd", "intel"])),
            key=key,
            vendor_uuid=draw(st.none() | IDS),
            pci_address=draw(st.none() | IDS),
            minor=draw(st.none() | st.sampled_from([0, 1, 128])),
        )
        names = draw(st.lists(st.sampled_from(["0", "1", "gi1", "gi7", "gi7ci1"]), unique=True, max_size=3))
        partitions = tuple(
            PartitionSample(partition=name, uuid=draw(st.none() | IDS), profile=draw(st.none() | IDS)) for name in names
        )
        devices.append(Held(device=device, partitions=partitions))
    return Question(held=tuple(devices))


@given(questions(), IDS, st.dictionaries(st.sampled_from(NAMES), VALUES), st.sampled_from(["gpu.amd.com", "x"]))
def test_whatever_is_given_leads_to_a_place_of_the_question_or_nowhere(
    question: Question, text: str, attributes: Attributes, driver: str
) -> None:
    there = {held.device.key: {None} | {part.partition for part in held.partitions} for held in question.held}
    for places in (Places(question), Places(question, NODES | {"card1": RenderNode(text, 1)})):
        for found in (places.find(text), places.find_claimed(DeviceName(driver, text, text), attributes)):
            assert found is None or found.partition in there[found.device]


def partitioned_host(root: Path, location: int, *, underscore: bool) -> None:
    """Make the sysfs of one MI300X in two partitions and one card that is whole.

    `location`: what KFD tells of the second partition.
    """
    platform = f"amdgpu_xcp{'_' if underscore else '.'}30"
    devices = {
        "pci0000:00/0000:19:00.0": ("card1", "renderD128"),
        f"platform/{platform}": ("card9", "renderD129"),
        "pci0001:c0/0001:c3:00.0": ("card2", "renderD136"),
    }
    links = root / "sys/class/drm"
    links.mkdir(parents=True)
    for device, names in devices.items():
        for name in names:
            node = root / "sys/devices" / device / "drm" / name
            node.mkdir(parents=True)
            (node / "device").symlink_to("../..")
            (links / name).symlink_to(f"../../devices/{device}/drm/{name}")
    connector = root / "sys/devices/pci0000:00/0000:19:00.0/drm/card1/card1-DP-1"
    connector.mkdir()
    (links / "card1-DP-1").symlink_to("../../devices/pci0000:00/0000:19:00.0/drm/card1/card1-DP-1")
    (links / "version").write_text("drm 1.1.0 20060810\n")
    topology = {
        0: "cpu_cores_count 96\nsimd_count 0\ndrm_render_minor 0\nlocation_id 0\ndomain 0\n",
        1: "simd_count 304\ndrm_render_minor 128\nlocation_id 6400\ndomain 0\n",
        2: f"simd_count 304\ndrm_render_minor 129\nlocation_id {location}\ndomain 0\n",
        3: "simd_count 416\ndrm_render_minor 136\nlocation_id 49920\ndomain 1\n",
        4: "no such thing\n",
    }
    for number, properties in topology.items():
        node = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        (node / "properties").write_text(properties)
        (node / "gpu_id").write_text(f"{number and 50000 + number}\n")
    (root / "sys/class/kfd/kfd/topology/nodes/5").mkdir()


@pytest.mark.parametrize("location", [6400 | 1, 6400 | 1 << 28], ids=["in the function", "in the high bits"])
@pytest.mark.parametrize("underscore", [True, False])
def test_sysfs_tells_the_gpu_behind_each_render_node(tmp_path: Path, location: int, *, underscore: bool) -> None:
    partitioned_host(tmp_path, location, underscore=underscore)
    first, second, whole = RenderNode("0000:19:00.0", 0), RenderNode("0000:19:00.0", 1), RenderNode("0001:c3:00.0")
    assert render_nodes(tmp_path) == {
        "card1": first,
        "renderD128": first,
        "card9": second,
        "renderD129": second,
        "amdgpu_xcp_30": second,
        "card2": whole,
        "renderD136": whole,
    }


def test_a_host_without_drm_has_no_render_nodes_and_one_without_kfd_only_those_of_whole_cards(tmp_path: Path) -> None:
    assert render_nodes(tmp_path) == {}
    partitioned_host(tmp_path, 6401, underscore=True)
    for properties in (tmp_path / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"):
        properties.unlink()
    assert render_nodes(tmp_path) == {
        "card1": RenderNode("0000:19:00.0"),
        "renderD128": RenderNode("0000:19:00.0"),
        "card2": RenderNode("0001:c3:00.0"),
        "renderD136": RenderNode("0001:c3:00.0"),
    }
