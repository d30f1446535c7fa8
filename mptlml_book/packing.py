"""The weights of a network in few bytes, for the moving figure of the kind "network"."""

import base64
import copy
from typing import Any

import numpy as np
import torch
from torch import nn


def eight_bits(net: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    """The network with rounded weights, and those as {"shapes": {name: (rows, columns, most)}, "weights": base64}.

    Each row of a matrix is a whole multiple, from -127 to 127, of a unit of its own; a vector
    counts as one row. The unit is a multiple, from 1 to 127, of `most`, the largest size of a
    weight, over 127². In the order of the names and rows, 8 bits each: the multiple that makes the
    unit, then those of the row.
    """
    net, multiples = copy.deepcopy(net), b""
    shapes: dict[str, Any] = {}
    with torch.no_grad():
        for name, weight in net.named_parameters():
            rows = weight.view(-1, weight.shape[-1])
            largest = rows.abs().amax(1, keepdim=True).clamp(min=1e-9)
            most = largest.max()
            steps = (127 * largest / most).ceil().clamp(max=127)
            unit = most * steps / 127**2
            whole = (rows / unit).round()
            rows.copy_(whole * unit)
            shapes[name] = *rows.shape, most
            multiples += torch.cat([steps, whole], 1).numpy().astype(np.int8).tobytes()
    return net, {"shapes": shapes, "weights": base64.b64encode(multiples).decode()}
