"""Kernels, ops and matrix units told by name: names as profilers write them, cut where they only repeat."""

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.facts.kernel_classes import CLASSES, kernel_class, op_class, uses_tensor_cores
from lostflops.ingest import ingest
from lostflops.store.run import Run
from shared_data import TRACES, needs_traces

AT = "void at::native::"
ANON = "void at::native::(anonymous namespace)::"
FOREACH = f"{ANON}multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, "
STEP = "Optimizer.step#Adam.step"

KERNELS = {
    "matmul": [
        ("volta_sgemm_128x64_tn", "aten::addmm"),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", "aten::mm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_32x5_tn_align8>(cutlass_80...", ""),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(cutlass_80...::Params)", "aten::mm"),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize192x128x32_stage4_warpsize4x2x1_tensor16x8x16_kernel", ""),
        ("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT", ""),
        ("nvjet_qqtst_192x192_128x4_1x2_h_bz_coopB_TNN", "aten::_scaled_mm"),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_bA32_bB32_bC32_t128x128x256u2_s4_dynB_sm100f", "Torch-Compiled Region: 1/1"),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u>(float*, int*)", ""),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, ...", ""),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x128_MI16x16x1_SN_LDSB1_AFC1", "aten::addmm"),
        ("_ZN2ck16tensor_operation6device27kernel_gemm_xdl_cshuffle_v3INS_28GridwiseGemm_xdl_cshuffle_v3ILi1EEE", ""),
        ("void splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(cublas...", "aten::mm"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasLt::cublasSplitKParams...", ""),
        ("void cutlass::Kernel<cutlass::reduction::kernel::ReduceSplitK<cutlass::MatrixShape<4, 128> > >(...)", ""),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, false, true>(...)", ""),
        (
            "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false, false>(...)",
            "aten::addmm",
        ),
        ("void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float const> > >(...)", ""),
        (
            "void scal_kernel<float, float, 1, false, 6, 5, 5, 3>(cublasTransposeParams<float>, float const*)",
            "aten::addmm",
        ),
        ("void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long, float*)", ""),
        ("triton_tem_fused__to_copy_addmm_gelu_t_view_9", ""),
        ("triton_tem_fused_bmm_7", ""),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", ""),
        ("_finalize_matmul_scatter_bf16", ""),
        ("ba_plus_cAA_kernel", STEP),
        ("linear_relu_square_kernel", "linear_relu_square_kernel_0"),
    ],
    "attention": [
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>(...)", ""),
        (
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnBwdSm90<flash::CollectiveMain...",
            "",
        ),
        ("void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<64>, cute::C<128> >...", ""),
        ("void flash::prepare_varlen_num_blocks_kernel<8, false>(int, int, int, int const*)", "flash_attn_3::fwd"),
        ("fmhaSm100fKernel_QkvBfloat16OBfloat16H64PagedKvCausalP64VarSeqQ128Kv128PersistentContext", ""),
        (
            "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t...",
            "",
        ),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0", ""),
        ("_ZN5aiter30fmha_fwd_hd128_bf16_rtna_groupE.kd", ""),
        ("void ck_tile::kentry<2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVS<...> > >(...)", ""),
        ("attn_fwd", "aten::_flash_attention_forward"),
        ("void thd_out_correction_kernel<__nv_bfloat16, 0, 16, true>(float*)", ""),
        ("void thd_grad_correction_kernel<__nv_bfloat16, Functor, 32>(float*)", ""),
        ("bwd_kernel_dk_dv", ""),
        ("kernel_unified_attention_3d", ""),
        ("triton_tem_fused_flex_attention_backward_split_transpose_11", "CompiledFunctionBackward"),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<(flashinfer::MaskMode)1, 64u>(...)", ""),
    ],
    "convolution": [
        ("volta_sgemm_32x128_nt", "aten::cudnn_convolution_backward_weight"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0_APM1", "aten::miopen_convolution"),
        ("ampere_gcgemm_64x64_nt", "aten::cudnn_convolution"),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*)", ""),
        ("void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int, int)", ""),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", ""),
        ("cudnn_infer_volta_scudnn_128x128_relu_medium_nn_v1", "aten::cudnn_convolution"),
        ("void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)", ""),
        ("void cudnn::winograd_nonfused::winogradForwardOutput4x4<float, float>(cudnn::winograd_nonfused::...)", ""),
        ("cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)", ""),
        ("void fft2d_r2c_32x32<float, false, 5u, true>(float2*, float const*, int)", ""),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64_tensor16x8x8", ""),
        ("void cutlass_cudnn_train::Kernel<cutlass_cudnn_train::reduction::kernel::ReduceSplitK<...> >(...)", ""),
        ("_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblockE", ""),
        ("igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt32x64x32_wt16x64x4_ws1x1_wr1x1", "aten::convolution_backward"),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", ""),
        ("_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_4gemmE", ""),
        ("_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm_bk0mk1", ""),
        ("triton_tem_fused__to_copy_convolution_repeat_unsqueeze_view_2", ""),
    ],
    "elementwise": [
        (f"{AT}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >", ""),
        (
            f"{AT}elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::(anonymous namespace)::...",
            "",
        ),
        (f"{AT}elementwise_kernel_manual_unroll<128, 8, at::native::gpu_kernel_impl_nocast<at::native::BinaryF...", ""),
        (f"{AT}vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1> >", "aten::fill_"),
        ("void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out(...)>", ""),
        (f"{ANON}fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(...)", "aten::native_dropout"),
        (f"{ANON}distribution_elementwise_grid_stride_kernel<float, 4, ...uniform_and_transform<...>>", ""),
        (f"{FOREACH}UnaryOpFunctor<float, 2, 1, 1>, at::native::Sqrt<float> >", "aten::_foreach_sqrt"),
        (f"{FOREACH}BinaryOpScalarFunctor<float, 1, 1, 0>, std::multiplies<float>, float>", "aten::_foreach_mul_"),
        ("triton_poi_fused_add_mul_4", ""),
        ("triton_poi_fused__scaled_mm__to_copy_clone_div_lift_fresh_permute_0", ""),
        ("triton_poi_fused_convolution_relu_3", ""),
        ("triton_for_fused_1", ""),
        ("triton__0d1d2d3de", "triton_poi_fused_add_mul_tanh_0"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)", ""),
        ("void (anonymous namespace)::fused_rope_kernel<true, 64l, true, __nv_bfloat16, long, 8u>(...)", ""),
        ("void cudnn::ops::scalePackedTensor_kernel<float, float>(long, float*, float)", "aten::convolution_backward"),
        ("SubTensorOpWithScalar1d", "aten::miopen_convolution"),
        ("__amd_rocclr_fillBufferAligned.kd", "aten::sum"),
    ],
    "normalisation": [
        (
            f"{AT}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, ...> > >",
            "aten::sum",
        ),
        ("void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true>(float*, int)", ""),
        ("void (anonymous namespace)::scaled_upper_triang_masked_softmax_warp_forward<c10::Half, c10::Half, 11>", ""),
        (f"{ANON}vectorized_layer_norm_kernel<float, float>(int, float, float const*)", "aten::native_layer_norm"),
        (f"{ANON}GammaBetaBackwardCUDAKernel_32x32<float, float>(long, long)", "aten::native_layer_norm_backward"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)", ""),
        ("MIOpenBatchNormFwdTrainSpatialMeanVariance", "aten::miopen_batch_norm"),
        (
            f"{AT}elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<GroupNormKernelImplInternal<float>(...",
            "",
        ),
        ("void cuComputePartGradGammaBeta<float, float, float, false>(float const*)", ""),
        ("void transformer_engine::layer_norm::ln_bwd_finalize_general_kernel<float, float, 4u>(...)", ""),
        ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", ""),
        ("kernel_cutlass_kernel_flashinfernormkernelsrmsnormRMSNormKernel_object_at__tensorptrbf16gmemalign128", ""),
        ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassIDF16bEEEEEE", ""),
        ("std::enable_if<(((8)>(0)))&&vllm::exists, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>", ""),
        ("triton_red_fused__log_softmax_div_mul_prepare_softmax_online_sigmoid_view_40", ""),
        ("triton_per_fused__flash_attn_backward__unsafe_view_mul_sigmoid_sigmoid_backward_sum_view_10", ""),
        ("triton_per_fused__fused_rms_norm__unsafe_view_add_mm_mul_select_sub_view_39", ""),
        (f"{ANON}max_pool_backward_nchw<float, float>(float const*, long const*, int)", ""),
        ("fused_softcapped_entropy_bwd_kernel", ""),
        (
            "void at_cuda_detail::cub::DeviceScanKernel<at_cuda_detail::cub::AgentScanPolicy<128, 15, ...",
            "aten::cumsum",
        ),
        (f"{FOREACH}LpNormFunctor<float, (at::native::NormType)1, float, 1, 1, 0>, float>", "aten::_foreach_norm"),
    ],
    "embedding": [
        ("void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 5ul>(...)", ""),
        ("void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float, float>", ""),
        ("void (anonymous namespace)::indexing_backward_kernel_stride_1<float>(long const*)", "aten::_index_put_impl_"),
        (f"{AT}index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<...", ""),
        (f"{AT}_scatter_gather_elementwise_kernel<128, 4, at::native::_cuda_scatter_gather_internal_kernel<...", ""),
        (f"{AT}vectorized_gather_kernel<16, long>(char*, char*, long*)", "aten::index_select"),
        (f"{ANON}indexSelectLargeIndex<c10::Half, long, unsigned int, 2, 2, -2, true>(...)", "aten::index_select"),
        (
            "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>...",
            "aten::embedding_bag",
        ),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int, long, decltype(nullptr)>(int, int)", ""),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, 1>(...)", ""),
        ("void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::finalize::KernelParams<cutlass::bfloat16_t> >", ""),
        ("triton_poi_fused_embedding_dense_backward_55", ""),
    ],
    "optimizer": [
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, adamMode_t>(int)", ""),
        (f"{FOREACH}FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>, float const*>", ""),
        (f"{FOREACH}FusedSgdMathFunctor<float, 2, true>, double>", "aten::_fused_sgd_"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, LAMBStage1Functor<float>, float*>(int)", ""),
        (f"{FOREACH}UnaryOpFunctor<float, 2, 1, 1>, at::native::Sqrt<float> >", STEP),
        (f"{AT}vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, at::detail::Array<char*, 3> >", STEP),
        ("triton_for_fused_1", "Optimizer.step#AdamW.step"),
        ("unheard_of", "Optimizer.step#Muon.step"),
        ("void kOptimizer32bit2State<float, 0>(float*, float*, float*, float*)", ""),
    ],
    "copy-cast": [
        (f"{ANON}CatArrayBatchedCopy_aligned16_contig<float, unsigned int, 2, 128, 1>(float*)", "aten::cat"),
        (f"{AT}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{{...", ""),
        (f"{AT}vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)...", ""),
        (f"{AT}vectorized_elementwise_kernel<4, fbgemm_gpu::_hfp8_to_float_gpu(at::Tensor const&, long, long)...", ""),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(...)", "aten::convolution_backward"),
        ("batched_transpose_32x32_half", "aten::miopen_convolution"),
        ("transpose_NCHW2CNHW_V2_2D_WG_off64", "aten::miopen_convolution"),
        ("SubTensorOpWithCastTensor1d", "aten::convolution_backward"),
        ("void deep_gemm::transpose_fp32<512, 64>(float const*, float*)", ""),
        ("void tensorrt_llm::kernels::quantize_with_block_size<2, __nv_bfloat16, 32, true, false>(int, int)", ""),
        ("void fbgemm_gpu::(anonymous namespace)::_FP8rowwise_to_float_cuda_kernel<float>(unsigned char const*)", ""),
        (f"{FOREACH}CopyFunctor<int, long, 2, 1, 1>, at::native::Copy<int, long> >", "aten::_foreach_copy_"),
        ("triton_poi_fused__to_copy_permute_t_4", ""),
        ("triton_poi_fused_clone_expand_0", ""),
    ],
    "other": [
        ("void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800>(...)", ""),
        (f"{AT}sbtopk::gatherTopK<float, unsigned int, 2, false>(...)", "aten::topk"),
        ("void moe::dev::routing::routingIndicesCoopKernel<moe::dev::routing::routingCustom::KernelParams<...> >", ""),
        ("triton__0d1d2d3d4d5d", "CompiledFunction"),
        ("at::cuda::(anonymous namespace)::spin_kernel(long)", ""),
        ("triton_tem_fused_0", ""),
        ("_Z", "aten::view"),
        ("", ""),
    ],
}

OPS = {
    "matmul": [
        "aten::mm",
        "aten::addmm",
        "aten::baddbmm",
        "aten::linear",
        "aten::_scaled_mm",
        "aten::mkldnn_linear",
        "mkldnn::_linear_pointwise",
        "AddmmBackward0",
        "autograd::engine::evaluate_function: BmmBackward0",
        "vllm::rocm_unquantized_gemm",
    ],
    "attention": [
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_flash_attention_forward",
        "flash_attn_3::bwd",
    ],
    "convolution": ["aten::mkldnn_convolution", "aten::convolution_backward", "aten::_slow_conv2d_forward"],
    "elementwise": [
        "aten::add_",
        "aten::gelu_backward",
        "aten::threshold_backward",
        "aten::native_dropout",
        "aten::normal_",
        "aten::zero_",
        "aten::__or__",
        "aten::binary_cross_entropy_with_logits",
        "MulBackward0",
        "_C::rotary_embedding",
    ],
    "normalisation": [
        "aten::native_layer_norm",
        "aten::native_batch_norm_backward",
        "aten::_softmax_backward_data",
        "aten::_log_softmax",
        "aten::sum",
        "aten::amax",
        "aten::linalg_vector_norm",
        "aten::nll_loss_forward",
        "aten::max_pool2d_with_indices",
        "aten::_foreach_norm",
    ],
    "embedding": [
        "aten::embedding_dense_backward",
        "aten::index",
        "aten::scatter_add_",
        "fbgemm::permute_2D_sparse_data",
    ],
    "optimizer": ["aten::_foreach_add_", "aten::_fused_adamw_", "Optimizer.step#AdamW.step"],
    "copy-cast": ["aten::copy_", "aten::_to_copy", "aten::cat", "aten::clone", "aten::_foreach_copy_"],
    "other": [
        "aten::empty",
        "aten::view",
        "aten::slice",
        "c10d::_reduce_scatter_base_",
        "c10d_functional::all_to_all_single",
        "vllm::all_gather",
        "CompiledFunction",
        "fb::convex_sum",
        "Optimizer.zero_grad#SGD.zero_grad",
        "",
    ],
}

TENSOR_CORES = {
    True: [
        "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn",
        "turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nt_align1>(...)",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_32x1_nn_align2>(...)",
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize192x128x32_stage4_warpsize4x2x1_tensor16x8x16_kernel",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
        "nvjet_tst_192x192_64x3_2x1_v_bz_coopB_splitK_NTN",
        "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_bA32_bB32_t128x8x256_s4_et128x8_dynB_sm100f",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u>(float*, int*)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<..., MainloopSm90TmaGmmaWarpSpecialized<4> >",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x128_MI16x16x1_SN_LDSB1_AFC1",
        "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt32x64x32_wt16x64x4_ws1x1_wr1x1",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_4gemmE",
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>(...)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnBwdSm90<flash::CollectiveMain...",
        "fmhaSm100fKernel_QkvBfloat16OBfloat16H64PagedKvCausalP64VarSeqQ128Kv128PersistentContext",
        "fmha_cutlassF_f16_aligned_64x64_rf_sm75(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t...)",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float...)",
        "_ZN5aiter30fmha_fwd_hd128_bf16_rtna_groupE.kd",
    ],
    False: [
        "volta_sgemm_128x64_tn",
        "ampere_sgemm_32x32_sliced1x4_nn",
        "ampere_gcgemm_64x64_nt",
        "volta_scudnn_128x128_stridedB_splitK_small_nn_v1",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(...)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel",
        "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int, int)",
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, int)",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false, false>(...)",
        "void magma_sgemmEx_kernel<float, float, float, true, false, 6, 4, 6, 3, 4>(int, int)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(...)",
        "void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<..., cute::TiledMMA<cute::MMA_Atom<...",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm70(PyTorchMemEffAttention::AttentionKernel<float...)",
        "Cijk_Ailk_Bljk_SB_MT128x64x16_SE_K1_TT8_4_USFGRO0_VAW1_WG16_16_1",
    ],
    None: ["attn_fwd", "triton_tem_fused_mm_3", "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", "XXT_kernel", ""],
}


def cases(table: dict[Any, list[Any]]) -> list[Any]:
    return [(entry, answer) for answer, entries in table.items() for entry in entries]


def test_classes_stand_in_the_order_of_the_ledger() -> None:
    assert " ".join(CLASSES) == (
        "matmul attention convolution elementwise normalisation embedding optimizer copy-cast other"
    )


@pytest.mark.parametrize(("kernel", "expected"), cases(KERNELS))
def test_kernel_class(kernel: tuple[str, str], expected: str) -> None:
    assert kernel_class(*kernel) == expected


@pytest.mark.parametrize("word", ["softmax", "gemm", "flash_attn", "conv2d", "embedding", "copy", "adam"])
def test_a_word_among_the_arguments_does_not_tell(word: str) -> None:
    functor = f"at::native::{word}_functor<float>"
    assert kernel_class(f"{AT}vectorized_elementwise_kernel<4, {functor}, std::array<char*, 2ul> >") == "elementwise"
    assert kernel_class(f"{AT}reduce_kernel<512, 1, {functor} >({functor})") == "normalisation"
    assert kernel_class(f"void unheard_of<{functor} >({functor})") == "other"


@pytest.mark.parametrize(("op", "expected"), cases(OPS))
def test_op_class(op: str, expected: str) -> None:
    assert op_class(op) == expected


@pytest.mark.parametrize(("kernel", "expected"), cases(TENSOR_CORES))
def test_uses_tensor_cores(kernel: str, expected: bool | None) -> None:
    assert uses_tensor_cores(kernel) is expected


@given(st.text(), st.text())
def test_any_name_has_a_class(name: str, op: str) -> None:
    assert kernel_class(name, op) in CLASSES
    assert kernel_class(f"_ZN{name}", op) in CLASSES


ROWS = list(csv.DictReader((TRACES / "truth.csv").read_text().splitlines())) if (TRACES / "truth.csv").exists() else []
TRACE_NAMES = [row["trace"] for row in ROWS if int(row["kernels"]) > int(row["comm_kernels"])]
FIRST_OF_SET = {name.split("/")[0]: name for name in reversed(TRACE_NAMES)}.values()

LIMIT = 0.01
EXCEPTIONS = {
    "sgl-project__sglang/": (0.05, "experts are routed by kernels that fit no class"),
    "AMD-AGI__TraceLens/b200_eager_trace": (0.06, "experts are routed by kernels that fit no class"),
    "AMD-AGI__TraceLens/inference_vllm_decode": (0.05, "experts are routed by kernels that fit no class"),
    "facebookresearch__HolisticTraceAnalysis/negative_queue": (0.04, "Triton kernels named after their signature"),
    "facebookresearch__HolisticTraceAnalysis/critical_path__cuda_event_sync": (0.75, "torch.cuda._sleep spins"),
}

KERNELS_AND_OPS = """
with launched as (
    select
        k.event, any_value(k.name) as kernel, any_value(k.dur) as dur, any_value(k.annotation) as annotation,
        arg_max(o.name, o.start) as op
    from events k
    left join events l on l.kind = 'runtime' and l.correlation = k.correlation
    left join events o on o.kind = 'op' and o.lane = l.lane and o.start <= l.start and o.start + o.dur > l.start
    where k.kind = 'kernel'
    group by k.event
)
select kernel, case when annotation like 'Optimizer.step#%' then annotation else coalesce(op, '') end, sum(dur)
from launched group by all
"""


@needs_traces
@pytest.mark.parametrize(
    "trace", [pytest.param(name, marks=() if name in FIRST_OF_SET else pytest.mark.slow) for name in TRACE_NAMES]
)
def test_little_is_other(trace: str, tmp_path: Path) -> None:
    ingest([TRACES / trace], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        kernels = run.sql(KERNELS_AND_OPS).fetchall()
    other = sum(ns for name, op, ns in kernels if kernel_class(name, op) == "other")
    limit = next((share for prefix, (share, _) in EXCEPTIONS.items() if trace.startswith(prefix)), LIMIT)
    assert other < limit * sum(ns for _, _, ns in kernels)
