"""What a program refuses, as it would give another result than its reference: judged, and read."""

from test_constructors import judged, module

pytest_plugins = ["shared_judge"]

IMAGES = "torch.randn(2, 6, 9, 7)"

STRIDED = module(
    "channels=6, stride=1",
    "self.reduce = nn.Conv2d(channels, channels, stride, stride) if stride > 1 else None",
    "return torch.sigmoid(x if self.reduce is None else self.reduce(x))",
    IMAGES,
)
ACTIVATED = module("act_layer=nn.GELU", "self.act = act_layer()", "return self.act(x + 1)", IMAGES)
NORMALISED = module(
    "channels=6", "self.norm = nn.BatchNorm2d(channels)", "return self.norm(x)", IMAGES
)
DROPPED = module("share=0.5", "self.drop = nn.Dropout(share)", "return self.drop(x) * 2", IMAGES)
PART = """
class Dropped(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5, self.training)

class Model"""
PARTLY = module("", "self.drop = Dropped()", "return self.drop(x) * 2", IMAGES).replace(
    "class Model", PART.strip("\n")
)
KEPT = DROPPED.replace("share=0.5", "share=0.0")
SQUEEZED = module(
    "",
    "pass",
    "a, b = x.chunk(2, -1)\nreturn a.squeeze(-1) * b.squeeze(-1)",
    "torch.randn(5, 12)",
)
REFLECTED = module("", "pass", "return F.pad(x, (2, 1), mode='reflect')", "torch.randn(2, 3, 9)")
TRANSPOSED = module(
    "channels=6, filters=5",
    "self.up = nn.ConvTranspose2d(channels, filters, 3, stride=2)",
    "return self.up(x)",
    IMAGES,
)
UNUSED = module(
    "share=0.5",
    "self.drop, self.share = nn.Dropout(share), share",
    "if self.training and self.share > 1:\n    x = x * 2\nreturn torch.sigmoid(x + 1)",
    IMAGES,
)
DEPTHWISE = module(
    "channels=6",
    "self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)",
    "return self.conv(x)",
    IMAGES,
)

LAYERED = module(
    "layer=(lambda: nn.ReLU())", "self.act = layer()", "return self.act(x + 1)", IMAGES
)
LIFTED = module(
    "channels=6",
    "self.gain = nn.Parameter(torch.rand(1, 1, 1, channels))",
    "return x * self.gain",
    "torch.randn(2, 5, 9, 6)",
)

TWICE = module("twice=3", "self.twice = twice", "return x * 2 if self.twice else x + 1", IMAGES)
DEEPER = module(
    "depth=3",
    "if depth < 0:\n    raise ValueError('depth')\nself.depth = depth",
    "return x * self.depth if self.depth > 0 else x + 1",
    IMAGES,
)

REFUSED = {
    "a flag that is a number": (TWICE, 'assert twice != 0, "written for twice != 0"'),
    "more than none": (DEEPER, 'assert depth > 0, "written for depth > 0"'),
    "made by a function": (LAYERED, "assert layer is ModelNew.__init__.__defaults__[0]"),
    "of fewer dimensions": (LIFTED, "assert x.dim() >= 4"),
    "strided": (STRIDED, 'assert stride <= 1, "written for stride <= 1"'),
    "activated": (ACTIVATED, 'assert act_layer is nn.GELU, "written for act_layer is nn.GELU"'),
    "normalised": (NORMALISED, "assert not self.training"),
    "dropped": (DROPPED, "assert not self.training"),
    "dropped in a part": (PARTLY, "assert not self.training"),
    "squeezed": (SQUEEZED, "// 2 != 1"),
    "reflected": (REFLECTED, " > 2"),
    "transposed": (TRANSPOSED, "assert up_channels == channels"),
    "depthwise": (DEPTHWISE, '< 2 ** 31, "offsets have 32 bits"'),
}


def test_a_program_refuses_what_it_was_not_written_for(warm_judge):
    texts, _ = judged(warm_judge, {name: source for name, (source, _) in REFUSED.items()})
    asserted = {
        name: [line for line in text.splitlines() if "assert" in line]
        for name, text in texts.items()
    }
    assert not {
        name: asserted[name]
        for name, (_, said) in REFUSED.items()
        if not any(said in line for line in asserted[name])
    }


def test_dropping_nothing_is_the_same_in_training(warm_judge):
    texts, caveats = judged(warm_judge, {"kept": KEPT, "unused": UNUSED})
    assert not {name for name, text in texts.items() if "assert not self.training," in text}
    assert '.p == 0, "dropout is not supported"' in texts["kept"]
    assert not {name for name, found in caveats.items() if "eval_mode_only" in found}
