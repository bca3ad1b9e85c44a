"""What the words on a page mean: lines of the ledger by their own definitions, and the abbreviations of the field."""

from typing import Final

from lostflops.ledger.lines import DEFINITIONS

_WORDS: Final = {
    "MFU": "model FLOPs utilisation: FLOPs that the model needs, as a part of what the devices could do in that time",
    "busbw": "bus bandwidth: what a link carries in a collective, so that collectives of any kind and size compare",
    "DDP": "distributed data parallel: each rank has the whole model and a part of the batch",
    "FSDP": "fully sharded data parallel: parameters are gathered for each layer, and given up after it",
    "TP": "tensor parallel: each layer is split over ranks",
    "PP": "pipeline parallel: layers are stages on different ranks",
}

GLOSSARY: Final = {**DEFINITIONS, **_WORDS}
