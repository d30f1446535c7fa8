"""The weights of a network in few bytes, for the moving figure of the kind "network"."""

import base64
import copy
from typing import Any

import numpy as np
import torch
from torch import nn


def eight_bits(net: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    """The network with rounded weights, and those as {"units": {name: (columns, units)}, "weights": base64}.

    Each row of a matrix is a whole multiple, from -127 to 127, of a unit of its own; a vector counts as one
    row. The multiples, 8 bits each, follow each other in the order of the names.
    """
    net, multiples = copy.deepcopy(net), b""
    units: dict[str, Any] = {}
    with torch.no_grad():
        for name, weight in net.named_parameters():
            rows = weight.view(-1, weight.shape[-1])
            unit = rows.abs().amax(1, keepdim=True).clamp(min=1e-9) / 127
            whole = (rows / unit).round()
            rows.copy_(whole * unit)
            units[name] = weight.shape[-1], unit[:, 0]
            multiples += whole.numpy().astype(np.int8).tobytes()
    return net, {"units": units, "weights": base64.b64encode(multiples).decode()}
