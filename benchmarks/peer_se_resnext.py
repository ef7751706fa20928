"""SE_ResNeXt in PyTorch, for `benchmark.py --peers`: the network of senet_tf1/models/se_resnext.py, layer by layer."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Block(nn.Module):
    """1x1, grouped 3x3, 1x1, squeeze-and-excitation, shortcut."""

    def __init__(self, channels, filters, cardinality=8, depth=64, reduction_ratio=4):
        super().__init__()
        width = cardinality * depth
        self.strides = 2 if filters == 2 * channels else 1
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width, 1e-3)
        self.conv2 = nn.Conv2d(width, width, 3, self.strides, 1, groups=cardinality, bias=False)
        self.bn2 = nn.BatchNorm2d(width, 1e-3)
        self.conv3, self.bn3 = nn.Conv2d(width, filters, 1, bias=False), nn.BatchNorm2d(filters, 1e-3)
        self.fc1 = nn.Linear(filters, filters // reduction_ratio, bias=False)
        self.fc2 = nn.Linear(filters // reduction_ratio, filters, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        scale = torch.sigmoid(self.fc2(F.relu(self.fc1(y.mean((2, 3))))))
        y = y * scale[:, :, None, None]
        if self.strides == 2:
            missing = y.shape[1] - x.shape[1]
            x = F.pad(F.avg_pool2d(x, 2), (0, 0, 0, 0, missing // 2, missing // 2))
        return F.relu(y + x)


class SEResNeXt(nn.Module):
    """Stem, three stages of three blocks, global average pool, FC."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64, 1e-3)
        sizes = [(64, 64)] * 3 + [(64, 128)] + [(128, 128)] * 2 + [(128, 256)] + [(256, 256)] * 2
        self.blocks = nn.Sequential(*[Block(channels, filters) for channels, filters in sizes])
        self.fc = nn.Linear(256, 10, bias=False)

    def forward(self, x):
        return self.fc(self.blocks(F.relu(self.bn(self.conv(x)))).mean((2, 3)))
