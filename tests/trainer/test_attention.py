import pytest
import torch
import torch.nn.functional as F

from trainer.model.block import rotary_angles, rotate, windowed_attention


def banded_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int) -> torch.Tensor:
    """The same by the definition: the whole square of scores under a mask."""
    distance = torch.arange(query.shape[2])[:, None] - torch.arange(query.shape[2])
    return F.scaled_dot_product_attention(query, key, value, attn_mask=(distance >= 0) & (distance < window))


@pytest.mark.parametrize("window", [1, 4, 8, 16])
def test_a_window_cut_into_blocks_equals_the_masked_square(window: int) -> None:
    query, key, value = torch.randn(3, 2, 3, 16, 8).unbind()
    blocked = windowed_attention(query, key, value, window=window)
    torch.testing.assert_close(blocked, banded_attention(query, key, value, window))


def test_no_window_is_full_causal_attention() -> None:
    query, key, value = torch.randn(3, 1, 2, 12, 8).unbind()
    full = windowed_attention(query, key, value, window=0)
    torch.testing.assert_close(full, banded_attention(query, key, value, 12))


def test_rotated_products_depend_on_the_distance_alone() -> None:
    cosine, sine = rotary_angles(32, 8, torch.device("cpu"), torch.float32)
    query, key = (rotate(torch.randn(8).expand(1, 1, 32, 8), cosine, sine)[0, 0] for _ in range(2))
    products = query @ key.T
    torch.testing.assert_close(products.diagonal(-3), products[3, 0].expand(29), rtol=1e-4, atol=1e-5)
