import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from tests.each_case import each_case
from trainer.model.attention import BLOCK, rotary_angles, rotate, window_mask, windowed_attention

CPU = torch.device("cpu")


def banded_attention(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """The reference: attention over all scores, with a mask."""
    distance = torch.arange(query.shape[2])[:, None] - torch.arange(query.shape[2])
    return F.scaled_dot_product_attention(query, key, value, attn_mask=(distance >= 0) & (distance < window))


@each_case("length", [3 * BLOCK, 2 * BLOCK + 5])
@each_case("window", [1, 4, BLOCK, BLOCK + 7, 2 * BLOCK])
def test_windowed_attention_and_its_gradients_equal_full_attention_under_a_mask(window: int, length: int) -> None:
    inputs = torch.randn(3, 2, 3, length, 8, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(2, 3, length, 8, dtype=torch.float64)
    outputs, gradients = [], []
    for attention in (windowed_attention, banded_attention):
        output = attention(*inputs, window=window)
        outputs.append(output)
        gradients.append(torch.autograd.grad(output, inputs, direction)[0])
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*gradients)


def test_window_attention_operators_pass_the_schema_and_fake_tensor_checks() -> None:
    """The inputs are not contiguous, like the outputs of a projection."""
    query, key, value = torch.randn(1, 130, 2, 3, 8).permute(3, 0, 2, 1, 4)
    operators = torch.ops.rankscope
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(operators.window_attention, (query, key, value, 20), test_utils=checks)
    torch.library.opcheck(operators.window_attention_backward, (query, query, key, value, 20), test_utils=checks)


def test_bfloat16_attention_equals_the_exact_result_rounded_to_bfloat16() -> None:
    inputs = torch.randn(3, 1, 2, 200, 16)
    exact = banded_attention(*inputs.bfloat16().float(), window=70)
    rounded = windowed_attention(*inputs.bfloat16(), window=70)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded, exact.bfloat16())


def test_attention_with_window_0_is_full_causal_attention() -> None:
    query, key, value = torch.randn(3, 1, 2, 12, 8).unbind()
    full = windowed_attention(query, key, value, window=0)
    torch.testing.assert_close(full, banded_attention(query, key, value, 12))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_with_the_window_mask_equals_attention_under_a_mask() -> None:
    inputs = torch.randn(3, 1, 2, 300, 16)
    flexible = flex_attention(*inputs, block_mask=window_mask(300, 70, CPU))
    assert isinstance(flexible, Tensor)
    torch.testing.assert_close(flexible, banded_attention(*inputs, window=70))


def test_compiled_flex_attention_with_the_window_mask_equals_attention_under_a_mask() -> None:
    """A block that is compiled for a GPU contains this call. The mask exists before the compilation."""
    inputs = torch.randn(3, 1, 2, 300, 16)
    window_mask(300, 70, CPU)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output: Tensor = flex_attention(query, key, value, block_mask=window_mask(300, 70, query.device))
        return output

    torch.testing.assert_close(compiled(*inputs), banded_attention(*inputs, window=70))


def test_the_mask_for_flex_attention_skips_blocks_outside_the_window() -> None:
    assert window_mask(4096, 512, CPU).sparsity() > 80


def test_rotary_query_key_products_depend_only_on_the_distance() -> None:
    cosine, sine = rotary_angles(32, 8, torch.device("cpu"), torch.float32)
    query, key = (rotate(torch.randn(8).expand(1, 1, 32, 8), cosine, sine)[0, 0] for _ in range(2))
    products = query @ key.T
    torch.testing.assert_close(products.diagonal(-3), products[3, 0].expand(29), rtol=1e-4, atol=1e-5)
