"""What ops keep for their backward pass, as PyTorch's derivatives.yaml has it.

A checkpoint without re-entry stops to compute again as soon as the last thing is there that backward needs. What an op
keeps of its inputs is there before it runs: where a module ends with a linear layer, that layer is not run again.
"""

from __future__ import annotations

from typing import Final

_NOTHING: Final = (
    "add add_ sub sub_ rsub neg view _unsafe_view reshape _reshape_alias t transpose permute expand expand_as "
    "unsqueeze squeeze flatten unflatten slice select narrow split split_with_sizes chunk unbind cat stack sum "
    "mean clone contiguous detach alias as_strided to _to_copy type_as movedim swapaxes view_as zeros_like ones_like "
    "copy_ pad constant_pad_nd ones zeros empty empty_like result_type item"
)
_OF_WHAT_IT_CALLS: Final = (
    "linear matmul layer_norm group_norm batch_norm dropout softmax log_softmax conv1d conv2d conv3d einsum "
    "cross_entropy_loss nll_loss nll_loss_nd scaled_dot_product_attention multi_head_attention_forward mse_loss_ "
    "_convolution feature_dropout max_pool2d adaptive_avg_pool2d instance_norm binary_cross_entropy_with_logits"
)
_INPUTS: Final = (
    "addmm mm bmm baddbmm addbmm mv dot convolution mul mul_ div div_ pow gelu silu mish elu leaky_relu abs log sin "
    "cos hardtanh hardswish square mse_loss smooth_l1_loss embedding gather index_select where maximum minimum"
)

NOTHING: Final = frozenset(f"aten::{name}" for text in (_NOTHING, _OF_WHAT_IT_CALLS) for name in text.split())
"""Ops that keep nothing of a tensor; or call others that do, which are looked at themselves."""
ONLY_INPUTS: Final = frozenset(f"aten::{name}" for name in _INPUTS.split())
"""Ops that keep inputs and no results. Others are taken to keep results."""
