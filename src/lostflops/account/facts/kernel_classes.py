"""Classes of kernels by the work that they do, read from their names.

    >>> kernel_class("volta_sgemm_128x64_tn"), kernel_class("volta_sgemm_128x64_tn", "aten::cudnn_convolution")
    ('matmul', 'convolution')
    >>> kernel_class("triton_per_fused__fused_rms_norm_add_12"), op_class("aten::native_layer_norm")
    ('normalisation', 'normalisation')
    >>> uses_tensor_cores("volta_sgemm_128x64_tn"), uses_tensor_cores("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn")
    (False, True)

This module does not know times, shapes or types, nor which kernels communicate: ingest decides that. A class is what
the kernel does, not which layer asked for it, with two exceptions: a convolution that a library computes as a matrix
product is a convolution, and an optimizer's arithmetic is `optimizer`. A kernel that fits no class (sorting, routing of
experts, bookkeeping of a server) is `other`, and so is a name that says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final, TypeVar

from lostflops.core.limits import MOST_NAMES

CLASSES: Final = (
    "matmul",
    "attention",
    "convolution",
    "elementwise",
    "normalisation",
    "embedding",
    "optimizer",
    "copy-cast",
    "other",
)
"""In order of precedence: if several kernels run at once, the time belongs to the class named first. `normalisation`
holds norms, softmax and reductions; `embedding` holds lookups, gather, scatter and indexing."""

_Rows = tuple[tuple[str, str], ...]

# Inductor's names: kind of loop, then the ops that were fused, joined by underscores.
_LAYOUT: Final = (
    "_to_copy|clone|copy_?|contiguous|cat|stack|constant_pad_nd|repeat|_?unsafe_view|view|reshape|permute|transpose|t"
    "|expand|unsqueeze|squeeze|slice|select|split|split_with_sizes|unbind|as_strided|alias|detach"
)
_LOOKUP: Final = "embedding(?:_dense_backward)?|index(?:_put|_select|_add)?_?|gather|scatter(?:_add)?_?"
_INDUCTOR: Final[_Rows] = (
    # Templates, which hold one product each: fused epilogues add names to it.
    ("attention", r"^triton_tem_fused\w*_attention"),
    ("convolution", r"^triton_tem_fused\w*_convolution"),
    ("matmul", r"^triton_(?:tem_fused\w*_)?(?:mm|bmm|addmm|baddbmm)(?:_|$)"),
    # Reduction, persistent reduction, split scan; an `mm` or `flash_attn_backward` in the list is a neighbour's name.
    ("normalisation", r"^triton_(?:red|per|spl)_"),
    # Pointwise, and foreach.
    ("copy-cast", rf"^triton_poi_fused(?:_(?:{_LAYOUT}))+_\d+$"),
    ("embedding", rf"^triton_poi_fused(?:_(?:{_LOOKUP}|{_LAYOUT}))+_\d+$"),
    ("elementwise", r"^triton_(?:poi|for)_"),
)

# The first row that matches a kernel's identity gives its class, so that exceptions stand before their rule.
_KERNELS: Final[_Rows] = (
    *_INDUCTOR,
    # Templates that run any functor on a list of tensors or over a tensor: the functor tells.
    ("optimizer", r"multi_tensor_apply_kernel<.*(?:adam|adagrad|sgd|novograd|lamb(?!da))"),
    ("normalisation", r"multi_tensor_apply_kernel<.*(?:l2|lp|max)norm"),
    ("copy-cast", r"multi_tensor_apply_kernel<.*\bcopy(?:functor)?<"),
    ("elementwise", r"multi_tensor_apply_kernel"),
    ("embedding", r"(?:^|::)(?:index|_scatter_gather)_elementwise_kernel"),
    ("copy-cast", r"elementwise_kernel\w*<.*\b(?:\w*copy_kernel_cuda|copy_device_to_device|\w+fp8\w*_gpu)\("),
    ("normalisation", r"elementwise_kernel\w*<.*\b(?:group_?norm|batch_?norm)\w*[<(]"),
    ("elementwise", r"(?:^|::)\w*elementwise_kernel"),
    # Attention. Keys and values are stored by slot, in kernels that carry its name.
    ("embedding", r"reshape_and_cache|(?:store|set|append|write)\w*kv_?cache"),
    ("attention", r"flash(?!infer)|fmha|attention|attn|sdpa|(?:prefill|decode)with\w*kv|mergestates"),
    ("attention", r"^bwd_(?:kernel_(?:dk_dv|dq|fuse)|preprocess)"),  # AOTriton; its forward is `attn_fwd`
    # Context parallelism of Transformer Engine, on packed sequences: partial results of a ring are put together.
    ("attention", r"(?:^|::)thd_(?:lse|out_correction|grad_correction)_kernel"),
    ("copy-cast", r"(?:^|::)thd_read_half_tensor_kernel"),
    ("attention", r"^reduce_segments$"),  # vLLM: second half of `kernel_unified_attention_3d`
    # Convolution. An implicit gemm is one, and so are the offsets, tiles and transforms computed for it.
    ("convolution", r"conv(?!e)|fprop|dgrad|wgrad|winograd|im2(?:d2)?col|col2im|fft2d_[cr]2[cr]"),
    ("convolution", r"_[a-z]\d*cudnn_|(?:cask|cutlass)_cudnn|cudnn::(?:cnn|winograd\w*)::"),
    ("convolution", r"igemm_(?:fwd|bwd|wrw)_|xdlops?_bwd_(?:weight|data)"),  # MIOpen, composable kernels
    # Norms, softmax, reductions; pooling reduces a window.
    ("normalisation", r"softmax|(?:layer|batch|group|instance|rms)_?norm|(?:^|::)(?:ln_(?:fwd|bwd)|bn_)|welford"),
    ("normalisation", r"rowwisemoments|gammabeta|cucomputegradinput|compute\w*(?:internalgradients|fusedparams)cuda"),
    ("normalisation", r"(?:^|::)reduce_kernel|lp_?norm|cross_?entropy|softcapped_entropy|nll_?(?:loss|criterion)"),
    ("normalisation", r"classnll|(?:max|avg|average)_?pool|pooling_(?:fw|bw)"),
    # Layouts, before matmul: `deep_gemm::transpose_fp32`.
    ("copy-cast", r"transpose|(?:nchw|nhwc|cnhw)_?(?:to|2)_?(?:nchw|nhwc|cnhw)"),
    # Matrix products, with the kernels that sum their parts.
    ("matmul", r"(?<!fb)gemm|gemv|matmul|cublas|nvjet|cijk_|split_?k_?reduce|reduce_?split_?k"),
    ("matmul", r"(?:^|_|::)(?:add|badd)?b?mm(?:_|$)|fused_moe_kernel|(?:^|::)fmoe_|marlin|wvsplitk"),
    ("matmul", r"^(?:epilogue::impl::globalkernel|dot_kernel|reduce_1block_kernel)$"),  # cuBLAS, without its name
    ("matmul", r"^(?:xxt|xtx|ba_plus_caa)_kernel|linear_relu"),  # Newton-Schulz steps of Muon; a fused linear layer
    # Embedding, before optimizer: tables are updated in the backward of their lookup.
    ("elementwise", r"rotary|(?:^|_|::)rope(?:_|$)"),
    ("embedding", r"embedding|pooled_embs|index_?(?:select|func|put|add|copy|fill|reduce)|indexing_backward"),
    ("embedding", r"gather(?!topk)|scatter|moe\w*(?:::\w+)*::finalize|moe_?(?:un)?permute"),
    ("embedding", r"linearize_index|(?:bounds_check|permute)_indices|permute_[12]d_|bucketize_sparse"),  # FBGEMM
    ("embedding", r"offsets_range|jagged"),  # FBGEMM
    ("optimizer", r"(?:^|_|::)(?:fused_?)?(?:adamw?|adagrad|adadelta|lamb|lion|sgd|rmsprop)(?:_|$)|koptimizer"),
    # Copies and casts; quantising is a cast.
    ("copy-cast", r"copy|(?<!broad)cast|convert|quant|qparam|fp8\w*_to_float|concat|(?:^|_)cat_|(?:^|_)permute_"),
    ("elementwise", r"elementwise|dropout|triu_tril|fillbuffer|silu|gelu|relu|swiglu|geglu|gated_act"),
    ("elementwise", r"scalepackedtensor|subtensoropwithscalar|op\w*tensor_kernel|add_tensor_kernel"),  # cuDNN, MIOpen
)


def _exactly(words: str) -> str:
    """Return a pattern for ops of these names, in any namespace, in place or not, forward or backward."""
    return rf"^(?:\w+::)*_?(?:{'|'.join(words.split())})(?:_?backward\d?(?:_data|_input)?)?_?(?:out)?$"


_OPS: Final[_Rows] = (
    *_INDUCTOR,
    ("other", r"c10d|record_param_comms|all_?(?:gather|reduce|to_?all)|reduce_?scatter"),  # collectives are no compute
    ("copy-cast", r"_foreach_copy|(?<!un)quantize|_quant$|reorder|copy_bucket"),
    ("normalisation", r"_foreach_(?:norm|max$)"),
    ("elementwise", r"_foreach_zero|rotary"),
    ("optimizer", r"^Optimizer\.step|_foreach_|fused_(?:adamw?|adagrad|sgd|lamb)|multi_tensor_(?:adam|sgd|lamb)"),
    ("attention", r"attention|flash_attn|fmha|sdpa"),
    ("convolution", r"conv(?:\dd|_|olution)"),
    ("normalisation", r"norm(?!al)|softmax|(?<!binary)(?<!binary_)cross_?entropy|nll_?loss|pool\d?d?(?:_|$|with)"),
    ("normalisation", _exactly("sum nansum mean var std var_mean std_mean prod max min amax amin aminmax")),
    ("normalisation", _exactly("argmax argmin any all cumsum cumprod logsumexp logcumsumexp count_nonzero trace")),
    ("matmul", r"(?<!fb)gemm|matmul|f8f8bf16"),
    ("matmul", _exactly("mm bmm addmm addbmm baddbmm mv addmv dot vdot linear mkldnn_linear linear_pointwise")),
    ("matmul", _exactly("addmm_activation scaled_mm grouped_mm scaled_grouped_mm int_mm einsum tensordot inner")),
    ("copy-cast", _exactly("copy to_copy to clone contiguous type_as cat concat stack chunk_cat repeat tile flip")),
    ("copy-cast", _exactly("roll pad constant_pad_nd pin_memory narrow_copy split_copy split_with_sizes_copy")),
    ("copy-cast", _exactly("slice_scatter select_scatter slice_backward select_backward flatten_dense_tensors")),
    ("copy-cast", _exactly("unflatten_dense_tensors")),
    ("embedding", r"embedding|SplitLookup|pooledembs|gather|scatter|index(?:_|$|backward|put|select)"),
    ("embedding", r"fbgemm::.*(?:permute|bucketize|bounds_check|cumsum|jagged|segment|offsets|recat|sparse)"),
    ("embedding", _exactly("nonzero masked_select take take_along_dim put repeat_interleave")),
    ("elementwise", _exactly("add sub rsub mul multiply div divide true_divide floor_divide remainder fmod neg abs")),
    ("elementwise", _exactly("pow square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan erf")),
    ("elementwise", _exactly("sigmoid log_sigmoid logit tanh relu relu6 leaky_relu gelu silu mish elu celu selu glu")),
    ("elementwise", _exactly("softplus hardtanh hardswish hardsigmoid threshold prelu clamp clamp_min clamp_max clip")),
    ("elementwise", _exactly("eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite")),
    ("elementwise", _exactly("bitwise_and bitwise_or bitwise_xor bitwise_not __and__ __or__ __xor__ maximum minimum")),
    ("elementwise", _exactly("where masked_fill lerp addcmul addcdiv nan_to_num sign sgn floor ceil round trunc tril")),
    ("elementwise", _exactly("triu fill zero zeros zeros_like ones ones_like full full_like arange linspace eye")),
    ("elementwise", _exactly("dropout native_dropout bernoulli uniform normal random rand randn randint mse_loss")),
    ("elementwise", _exactly("l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy(?:_with_logits)?")),
)

_TENSOR_CORES: Final = (
    # No matrix instruction: vector units, matrix-vector products, and what runs before or after a product.
    (False, r"simt|_ffma_|gemv|gemmk1|gemmsn_|magma_|(?:^|_)(?:[sdcz]|gc)gemm(?![a-z0-9])|_[shd]cudnn_"),
    (False, r"(?:maxwell|pascal|volta|turing|ampere)_\w*hgemm|[dw]grad\w*_engine"),
    (False, r"split_?k_?reduce|reduce_?split_?k|(?:^|\s)(?:dot_kernel|reduce_1block_kernel|epilogue::impl::global)"),
    (False, r"flashattnbwdp(?:re|ost)process|flash_bwd_(?:dot_do_o|convert)|splitkv_?combine|prepare_varlen"),
    (False, r"cudnn\w*::compute\w*offsets|cudnn::winograd|im2col|reduce_wgrad"),
    (False, r"fmha_cutlass[fb]_\w+_sm50|fmha_cutlass[fb]_f32_\w+_sm7"),  # tensor cores take float from sm80 on
    (False, r"cijk_(?!.*_mi\d+x\d+).*_tt\d+_\d+"),  # Tensile names either its matrix instruction or a thread tile
    (True, r"tensorop|[gu]mma|wmma|mma_atom|tcgen05|_tensor\d+x\d+x\d+|warpgroupsize"),
    (True, r"_[a-z]\d{3,6}(?:gemm|cudnn)"),  # s884, h1688, s16816: shape of the instruction
    (True, r"nvjet|deep_gemm::sm\d+_\w*gemm|(?:^|\s)bmm_\w+_sm1\d\d"),
    (True, r"xdl|mfma|cijk_.*_mi\d+x\d+|igemm_\w+_gtcx"),  # AMD
    (True, r"flash_(?:fwd|bwd)|flashattn(?:fwd|bwd)|fmhasm\d+|sdpa_sm\d+_flash|fmha_cutlass|fmha_(?:fwd|bwd)_hd\d+"),
    (True, r"fmhafwd(?:splitkv)?kernel|fmhabwddqdkdv"),
)

_AMD: Final = r"cijk_|xdl|mfma|gtcx|ck_tile|ck::"

_Answer = TypeVar("_Answer")

_REMEMBERED: Final = MOST_NAMES
"""Size of the caches: a kernel comes with many ops, and an op with many kernels, but there are few of each."""

# Templates whose argument is the kernel: CUTLASS, composable kernels, ATen, Apex.
_LAUNCHER: Final = re.compile(
    r"(?:^|::)(?:Kernel2?|device_kernel|kentry|multi_tensor_apply_kernel|\w*elementwise_kernel\w*)$"
)
_LONGEST_NAME: Final = 4_096
"""Characters that are read: templates make names of many thousand, but the kernel is named early."""
_NOISE: Final = re.compile(r"^void |^std::enable_if<.*?>::type |\(anonymous namespace\)::|<unnamed>::")
_MANGLED_PART: Final = re.compile(r"L[a-z]\d+E|DF\d+b?_?|[ST][0-9A-Z]*_|(\d{1,4})(?=[A-Za-z_])|I")


def kernel_class(name: str, op: str = "") -> str:
    """Return the class of a device kernel.

    `op` is the op around its launch, or the optimizer's annotation if one encloses it; it decides if the name does not.

    >>> foreach = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<UnaryOpFunctor<float, 2, 1, 1> >"
    >>> kernel_class(foreach, "aten::_foreach_sqrt"), kernel_class(foreach, "Optimizer.step#Adam.step")
    ('elementwise', 'optimizer')
    >>> kernel_class("void cub::DeviceRadixSortOnesweepKernel<...>", "aten::embedding_dense_backward")
    'embedding'
    """
    found = _class_by_name(name)
    if found is None:
        return op_class(op)
    if found == "matmul" and op_class(op) == "convolution":
        return "convolution"
    if found in {"elementwise", "normalisation", "copy-cast"} and op.startswith("Optimizer.step"):
        return "optimizer"
    return found


@lru_cache(_REMEMBERED)
def _class_by_name(name: str) -> str | None:
    return _first(_KERNELS, _identity(name))


@lru_cache(_REMEMBERED)
def op_class(name: str) -> str:
    """Return the class of an op, on ranks without an accelerator.

    >>> [op_class(f"aten::{op}") for op in ("addmm", "mkldnn_convolution", "_fused_adamw_", "view")]
    ['matmul', 'convolution', 'optimizer', 'other']
    """
    return _first(_OPS, name[:_LONGEST_NAME].removeprefix("autograd::engine::evaluate_function: ")) or "other"


@lru_cache(_REMEMBERED)
def rounds_to_tf32(kernel: str) -> bool:
    """Return whether a kernel that multiplies fp32 uses tensor cores, which take tf32; AMD's matrix cores take fp32.

    >>> rounds_to_tf32("ampere_sgemm_128x64_nn"), rounds_to_tf32("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4")
    (False, True)
    >>> rounds_to_tf32("Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x2x1_SN")
    False
    """
    return uses_tensor_cores(kernel) is True and not re.search(_AMD, kernel, re.IGNORECASE)


@lru_cache(_REMEMBERED)
def uses_tensor_cores(kernel: str) -> bool | None:
    """Return whether a matmul, convolution or attention kernel uses tensor or matrix cores; None if its name is silent.

    >>> uses_tensor_cores("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_kernel")
    False
    >>> uses_tensor_cores("triton_tem_fused_mm_3") is None
    True
    """
    return _first(_TENSOR_CORES, _readable(kernel))


def _first(rows: tuple[tuple[_Answer, str], ...], text: str) -> _Answer | None:
    for answer, search in _searches(rows):
        if search(text):
            found: _Answer = answer
            return found
    return None


@cache
def _searches(rows: tuple[tuple[Any, str], ...]) -> tuple[tuple[Any, Callable[[str], object]], ...]:
    """Return the rows with compiled patterns: to look them up again takes longer than most searches."""
    return tuple((answer, re.compile(pattern, re.IGNORECASE).search) for answer, pattern in rows)


def _identity(name: str) -> str:
    """Return the part of a name that identifies the kernel: no template arguments, unless they are the kernel.

    >>> _identity("void at::native::(anonymous namespace)::softmax_warp_forward<float, 10>(float*, int)")
    'at::native::softmax_warp_forward'
    >>> _identity("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_nn>")
    'cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_nn>'
    """
    name = _readable(name)
    head = re.split(r"[<(]", name, maxsplit=1)[0]
    return name if _LAUNCHER.search(head) else head


def _readable(name: str) -> str:
    name = name[:_LONGEST_NAME]
    return _NOISE.sub("", _demangle_name(name) if name.startswith("_Z") else name)


def _demangle_name(name: str) -> str:
    """Return the identifiers of a mangled name: its own, then those of its template arguments.

    >>> _demangle_name("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_8PipelineIDF16bfEEEEEEvDpT1_")
    'ck_tile::kentry<Rmsnorm2dFwd, Pipeline'
    """
    own: list[str] = []
    arguments: list[str] = []
    target, position = own, 2
    while part := _MANGLED_PART.search(name, position):
        position = part.end()
        if part[0] == "I" and own:
            target = arguments
        elif part[1]:
            position += int(part[1])
            target.append(name[part.end() : position])
    return "::".join(own) + ("<" + ", ".join(arguments) if arguments else "")
