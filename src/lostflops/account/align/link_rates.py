"""What the links of a process group can carry, where the device tells it: inside a host, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.account.facts.devices import find_device

if TYPE_CHECKING:
    from lostflops.store.run import Run

_GROUPS: Final = """
    with members as (
        select distinct group_id, group_size, rank from collectives where group_id is not null and group_size > 1
    ), hosts as (
        select count(host) = 0 and count(distinct device_index) = count(device_index) as is_one from ranks
    )
    select group_id, any_value(device), count(host) = count(*) as is_named
    from members join ranks using (rank) group by group_id, group_size
    having count(*) = group_size and count(distinct device) = 1 and count(device) = count(*)
       and if(count(host) = count(*), count(distinct host) = 1,
              (select is_one from hosts) and count(device_index) = count(*))"""


def link_rates(run: Run) -> tuple[dict[str, float], bool]:
    """GB/s per direction by group, of those whose members are all on one host; and whether hosts had to be guessed: a
    run whose ranks all have a device of another number is taken to be on one. Two devices of one number are on two."""
    rates, guessed = {}, False
    for group, name, is_named in run.sql(_GROUPS).fetchall():
        device = find_device(name)
        if device is not None and device.scaleup_gbs is not None:
            rates[group] = device.scaleup_gbs
            guessed |= not is_named
    return rates, guessed
