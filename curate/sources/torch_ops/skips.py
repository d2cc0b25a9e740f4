"""Operators of PyTorch's database that make no kernel worth learning, and why.

The first pattern that matches an operator's full name decides.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

SKIPPED: dict[str, str] = {
    "random": """
        bernoulli cauchy exponential geometric log_normal multinomial normal* uniform
        rand* *dropout* nn.functional.rrelu nn.functional.fractional_* *_svd_lowrank
        svd_lowrank pca_lowrank
    """,
    "factory": """
        arange empty* eye full* linspace* logspace* new_* ones* zeros* scalar_tensor
        signal.windows.* tril_indices triu_indices zero_ fill
    """,
    "view_or_copy": """
        H T mH mT t t_copy alias_copy as_strided* atleast_* broadcast_* chunk clone
        contiguous conj conj_physical detach diagonal diagonal_copy linalg.diagonal dsplit
        *_scatter expand* flatten hsplit imag real item movedim narrow* permute* positive ravel
        reshape* resize_* resolve_* select slice split* squeeze* swap* tensor_split to
        transpose* unbind* unflatten unfold unfold_copy unravel_index unsafe_chunk
        unsafe_split unsqueeze* view* vsplit bool byte char double float half int long
        short bfloat16 chalf cfloat cdouble complex polar equal is*real meshgrid.*
        allclose tile
    """,
    "linear_algebra": """
        cholesky* geqrf linalg.ch* linalg.cond linalg.det linalg.eig* linalg.h*
        linalg.inv* linalg.ldl* linalg.lstsq* linalg.lu* linalg.matrix_* linalg.p*
        linalg.qr linalg.s* linalg.tensor* linalg.multi_dot linalg.norm* logdet lu*
        matrix_exp norm.nuc ormqr pinverse qr svd triangular_solve
    """,
    "transform_or_library": """
        fft.* stft istft nn.functional.ctc_loss nn.functional.multi_head_*
        nn.functional.grid_sample nn.functional.linear_cross_entropy* jiterator_*
        hash_tensor histogramdd histogram histc torch.ops.* torch._scaled_mm* sparse.*
        to_sparse _segment_reduce* nn.functional.scaled_dot_product_attention
        nn.functional.embedding_bag bincount einsum gradient nn.functional.unfold
        nn.functional.conv* grid_sampler_*
    """,
    "data_dependent_output": """
        argwhere masked_select nonzero* unique* combinations cartesian_prod
        repeat_interleave
    """,
    "selection_without_a_kernel": """
        kthvalue median mode nanmedian masked.median quantile nanquantile topk msort
        argsort sort searchsorted bucketize isin
    """,
    "internal": """
        __* _* native_* *_backward nn.functional.max_unpool* *.decomposed
        *.triton_optimized *.without_cudnn frexp nextafter max_pool2d_with_*
    """,
    "special_function_without_a_kernel": """
        special.airy_ai special.*_polynomial_* special.zeta igamma* special.polygamma*
        polygamma* mvlgamma* special.spherical* special.scaled_modified*
    """,
    "order_dependent": """
        scatter index_put put index_copy
    """,
    "rarely_called": """
        masked.* special.bessel* special.modified_bessel* *.with_dtype *.decimals_0
        nn.functional.pad.*_negative
    """,
    "alias": """
        special.expit constant_pad_nd true_divide flipud fliplr max.binary min.binary trapz norm
        norm.* nn.functional.upsample_* nn.functional.interpolate.area mv
    """,
}
"""Reason -> patterns of full names, as `fnmatch` reads them."""


def skip_reason(full_name: str) -> str | None:
    """Return why an operator is left out, or None when it is used."""
    for reason, patterns in SKIPPED.items():
        if any(fnmatchcase(full_name, pattern) for pattern in patterns.split()):
            return reason
    return None
