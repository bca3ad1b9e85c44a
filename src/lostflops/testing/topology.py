"""Process groups and their ranks. Tensor-parallel ranks are neighbours, then data, then pipeline."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeshPlace:
    """Place of a rank, and the groups that it communicates in; None if the group would be the rank alone."""

    stage: int
    tensor: ProcessGroup | None
    data: ProcessGroup | None
    pipeline: ProcessGroup | None


@dataclass(frozen=True, slots=True)
class Topology:
    world: ProcessGroup
    places: tuple[MeshPlace, ...]

    def groups_of(self, rank: int) -> tuple[ProcessGroup, ...]:
        place = self.places[rank]
        own = (group for group in (place.tensor, place.data, place.pipeline) if group is not None)
        return (self.world, *(group for group in own if group != self.world))


def layout(ranks: int, tensor: int, pipeline: int) -> Topology:
    """Number the groups as `new_group` does when every rank creates all of them: names are unique in the job."""
    data = ranks // (tensor * pipeline)
    world = ProcessGroup("0", "default_pg", tuple(range(ranks)))
    grid = [[[t + tensor * (d + data * p) for t in range(tensor)] for d in range(data)] for p in range(pipeline)]
    members = {
        "tp": [tuple(row) for plane in grid for row in plane],
        "dp": [tuple(grid[p][d][t] for d in range(data)) for p in range(pipeline) for t in range(tensor)],
        "pp": [tuple(grid[p][d][t] for p in range(pipeline)) for d in range(data) for t in range(tensor)],
    }
    group_of: dict[tuple[str, int], ProcessGroup] = {}
    created = 0
    for dimension, sets in members.items():
        for ranks_of_group in sets:
            if len(ranks_of_group) == 1:
                continue
            group = world
            if dimension != "dp" or len(ranks_of_group) != ranks:
                created += 1
                group = ProcessGroup(str(created), f"mesh_{dimension}", ranks_of_group)
            group_of.update({(dimension, rank): group for rank in ranks_of_group})
    places = tuple(
        MeshPlace(
            stage=rank // (tensor * data),
            tensor=group_of.get(("tp", rank)),
            data=group_of.get(("dp", rank)),
            pipeline=group_of.get(("pp", rank)),
        )
        for rank in range(ranks)
    )
    return Topology(world, places)
