"""The weights of a network in few bytes, for the moving figure of the kind "network"."""

import base64
import copy

import numpy as np
import torch
from torch import nn


def eight_bits(net: nn.Module) -> tuple[nn.Module, dict[str, tuple[int, int]], str]:
    """The network with rounded weights, their shapes {name: (rows, columns)}, and themselves in base64, for the page.

    Each row is a whole multiple, from -127 to 127, of a unit of its own. First come all units, float32, then all
    multiples, 8 bits each, in the order of the shapes; a vector counts as one row.
    """
    net, shapes, units, multiples = copy.deepcopy(net), {}, b"", b""
    with torch.no_grad():
        for name, weight in net.named_parameters():
            rows = weight.view(-1, weight.shape[-1])
            unit = rows.abs().amax(1, keepdim=True).clamp(min=1e-30) / 127
            whole = (rows / unit).round()
            rows.copy_(whole * unit)
            shapes[name] = rows.shape[0], rows.shape[1]
            units += unit.numpy().astype("<f4").tobytes()
            multiples += whole.numpy().astype(np.int8).tobytes()
    return net, shapes, base64.b64encode(units + multiples).decode()
