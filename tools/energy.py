"""Estimates energy and embodied carbon of tokens from a model's size: docs/energy.md has each formula and its source.

Decoding follows EcoLogits' regression on measurements, prefill follows the operations that a token takes, and a cached
token is a share of a processed one. The low and the high figure vary what a customer cannot know: batch, precision,
GPU, utilisation, PUE and hardware life. It is pure arithmetic, in floats until a figure is rounded for the catalogue.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean

from catalogue.footprint.energy import METHOD, EnergyFigures, PerToken, Range, rounded

# These are EcoLogits' coefficients of November 2025, fitted on H100s: one GPU's Wh and one request's seconds per output
# token.
GPU_WH_PER_ACTIVE_B = 1.1665273170451914e-06
GPU_WH_BATCH_EXPONENT = -0.011205921025579175
GPU_WH_BASE = 4.052928146734005e-05
SECONDS_PER_ACTIVE_B = 0.0006785088094353663
SECONDS_PER_BATCH = 0.0003119310311688259
SECONDS_BASE = 0.019473717579473387
MEMORY_OVERHEAD = 1.2  # factor on the weights, for cache and activations
SERVER_GPUS = 8
SERVER_W = 1200.0  # without its GPUs

FLOP_PER_PARAMETER = 2.0  # a multiplication and an addition per active parameter and token
LARGE_SCALE_UTILISATION = 0.14  # while decoding at DeepSeek, relative to the 16-bit peak: the best published value
YEAR_SECONDS = 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """Holds a GPU's data sheet: GB, W at its limit, dense TFLOP/s at 16 bits, TB/s of memory bandwidth."""

    memory_gb: float
    power_w: float
    tflops: float
    bandwidth_tb_s: float


GPUS = {
    "a100": Gpu(80, 400, 312, 2.039),
    "h100": Gpu(80, 700, 989.4, 3.35),
    "b200": Gpu(180, 1000, 2250, 8.0),
}


@dataclass(frozen=True, slots=True)
class Serving:
    """Describes a way to serve a model, which a provider knows and its customers do not.

    `bits` of a weight; `batch` of requests that decode together; `utilisation` of the GPU's peak while a prompt is
    processed; `cached` is a cached prompt token's share of a processed one; `embodied_kg` of CO2e per GPU with its
    share of the server, over `life_s` of work.
    """

    gpu: str
    bits: int
    batch: int
    utilisation: float
    embedding_utilisation: float
    cached: float
    pue: float
    embodied_kg: float
    life_s: float


LOW = Serving("b200", 8, 256, 0.6, 0.5, 0.0, 1.09, 876.5, 5 * YEAR_SECONDS)
VALUE = Serving("h100", 16, 64, 0.4, 0.2, 0.01, 1.2, 985.5, 3 * YEAR_SECONDS)
HIGH = Serving("a100", 16, 4, 0.2, 0.05, 0.2, 1.37, 1500.0, 2.5 * YEAR_SECONDS)


@dataclass(frozen=True, slots=True)
class Size:
    """Holds a model's billions of parameters, all of them and those active for a token.

    `gpus` of one replica: None means as many as its weights need. `tokens_per_s` is the measured speed of one answer;
    None means that it is modelled.
    """

    total_b: float
    active_b: float
    gpus: int | None = None
    tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Holds the least and the most that a model's size and data centres may be."""

    smallest: Size
    largest: Size
    pue: tuple[float, float] | None = None
    embedding: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """Holds the work of one token: `gpus` on `batch` requests for `seconds`; Wh with PUE; grams CO2e embodied."""

    gpus: float
    seconds: float
    batch: float
    wh: float
    embodied_g: float


def gpus_needed(size: Size, serving: Serving) -> int:
    """Returns the GPUs of one replica: the weights with their overhead, rounded up to a power of two."""
    gigabytes = MEMORY_OVERHEAD * size.total_b * serving.bits / 8
    return 1 << math.ceil(math.log2(math.ceil(gigabytes / GPUS[serving.gpu].memory_gb)))


def decode(size: Size, serving: Serving) -> Work:
    """Estimates one output token by EcoLogits' model; GPUs other than the H100 by their power per memory bandwidth."""
    gpu, reference = GPUS[serving.gpu], GPUS["h100"]
    gpus = size.gpus or gpus_needed(size, serving)
    gpu_wh = GPU_WH_PER_ACTIVE_B * math.exp(GPU_WH_BATCH_EXPONENT * serving.batch) * size.active_b + GPU_WH_BASE
    gpu_wh *= (gpu.power_w / gpu.bandwidth_tb_s) / (reference.power_w / reference.bandwidth_tb_s)
    modelled_s = SECONDS_PER_ACTIVE_B * size.active_b + SECONDS_PER_BATCH * serving.batch + SECONDS_BASE
    seconds = 1 / size.tokens_per_s if size.tokens_per_s else modelled_s
    server_wh = seconds / 3600 * SERVER_W * gpus / SERVER_GPUS / serving.batch
    return Work(
        gpus=gpus,
        seconds=seconds,
        batch=serving.batch,
        wh=serving.pue * (server_wh + gpus * gpu_wh),
        embodied_g=_embodied_g(gpus * seconds / serving.batch, serving),
    )


def prefill(size: Size, serving: Serving) -> Work:
    """Estimates one prompt token: its operations at the GPU's utilised peak.

    The power is that of the GPU and its share of the server. Weights of 8 bits are multiplied at twice the speed of 16
    bits.
    """
    gpu = GPUS[serving.gpu]
    flop_per_s = serving.utilisation * gpu.tflops * 1e12 * 16 / serving.bits
    seconds = FLOP_PER_PARAMETER * size.active_b * 1e9 / flop_per_s
    watts = gpu.power_w + SERVER_W / SERVER_GPUS
    return Work(
        gpus=1,
        seconds=seconds,
        batch=1,
        wh=serving.pue * watts * seconds / 3600,
        embodied_g=_embodied_g(seconds, serving),
    )


def decode_at_scale(size: Size, serving: Serving) -> Work:
    """Estimates one output token at the utilisation of the largest deployment that published it, on H100s at 16 bits.

    EcoLogits' model grows with the GPUs of a replica, which is too much for mixtures of experts over hundreds of them.
    """
    at_scale = replace(serving, gpu="h100", bits=16, utilisation=LARGE_SCALE_UTILISATION)
    return prefill(size, at_scale)


def cases(facts: Facts) -> list[tuple[Size, Serving]]:
    """Returns low, the value at both ends of the model's range, and high: how large it is and how it is served."""
    ends = (facts.smallest, LOW, 0), (facts.smallest, VALUE, 0), (facts.largest, VALUE, 1), (facts.largest, HIGH, 1)
    return [
        (
            size,
            replace(
                serving,
                pue=serving.pue if facts.pue is None else facts.pue[end],
                utilisation=serving.embedding_utilisation if facts.embedding else serving.utilisation,
            ),
        )
        for size, serving, end in ends
    ]


def estimate(facts: Facts) -> EnergyFigures:
    """Estimates a model's figures; if its size is guessed, the value is the middle of both ends.

    An embedding has no output: its output figure is its prompt's, so that every token counts.
    """
    served = cases(facts)
    processed, generated = [prefill(*case) for case in served], [decode(*case) for case in served]
    at_scale = decode_at_scale(*served[0])

    def per_token(quantity: Callable[[Work], float]) -> PerToken:
        low, *values, high = map(quantity, processed)
        prompt = (low, fmean(values), high)
        low, *values, high = map(quantity, generated)
        output = prompt if facts.embedding else (min(low, quantity(at_scale)), fmean(values), high)
        cached = (LOW.cached * prompt[0], VALUE.cached * prompt[1], HIGH.cached * prompt[2])
        return PerToken(*(Range(*map(rounded, figures)) for figures in (output, prompt, cached)))

    pue = rounded(fmean(serving.pue for _, serving in served[1:3]))
    return EnergyFigures(per_token(attrgetter("wh")), per_token(attrgetter("embodied_g")), pue, method=METHOD)


def _embodied_g(gpu_seconds: float, serving: Serving) -> float:
    return 1000 * serving.embodied_kg * gpu_seconds / serving.life_s
