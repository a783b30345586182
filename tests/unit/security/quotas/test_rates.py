"""Rates and buckets; what is expected was read off Apache Kafka 4.3.1's classes."""

from __future__ import annotations

import pytest

from moldau.security.quotas.mutations import TokenBucket
from moldau.security.quotas.sampled_rate import THROTTLE_MS_MAX, QuotaWindows, SampledRate, throttle_ms

LIMIT = 100.0
Row = tuple[int, int, int, float, int, int, float]
"""When a value was recorded, when it was measured, the value; rate, period and throttle time, and tokens after a fifth
of the value was spent."""
OBSERVED = (
    (
        QuotaWindows(1, 2000),
        (
            (4424, 4424, 1506, 1506000.0, 1, 15059, -101.2),
            (5115, 5546, 722, 1985.7397504456326, 1122, 21158, -133.4),
            (6193, 6193, 1560, 2141.322781232335, 1769, 36111, -380.7),
            (6671, 6671, 2215, 2671.5620827770363, 2247, 57783, -775.9),
            (7279, 7635, 2165, 2543.7558393023983, 3211, 78469, -1112.5),
            (8037, 8652, 2180, 3311.458859162039, 1981, 63619, -1446.8),
            (8941, 8941, 1292, 3459.0308370044054, 2270, 76250, -1676.3),
            (11648, 12491, 2030, 2408.0664294187427, 843, 19457, -1727.3),
            (12924, 13194, 1884, 2531.6946959896504, 1546, 37594, -2033.8),
            (13235, 13235, 2198, 3851.291745431632, 1587, 59533, -2469.3),
            (13388, 13993, 2595, 3713.006396588486, 2345, 84725, -2912.5),
            (14630, 15289, 503, 2529.5248558088438, 3641, 88459, -2883.5),
        ),
    ),
    (
        QuotaWindows(3, 1000),
        (
            (156, 156, 1587, 793.5, 2000, 13870, -17.4),
            (10059, 10059, 123, 61.5, 2000, 0, 275.4),
            (10599, 11495, 382, 207.30706075533664, 2436, 2614, 223.6),
            (11634, 12020, 171, 228.30124957784534, 2961, 3799, 241.9),
            (12172, 12172, 2932, 1707.5248461902509, 2113, 33967, -329.3),
            (12552, 12552, 1209, 1932.2101885278782, 2493, 45677, -533.1),
            (12588, 13399, 800, 1681.736526946108, 3340, 52830, -608.4),
            (13943, 13943, 1238, 2750.1082719792116, 2309, 61191, -801.6),
            (14197, 14197, 575, 2701.9118220834957, 2563, 66687, -891.2),
            (14817, 14817, 2216, 2871.81903864279, 3183, 88227, -1272.4),
            (15274, 16153, 761, 2167.420814479638, 2210, 45690, -1291.0),
            (16656, 16656, 1300, 2244.7475119793585, 2713, 58187, -1500.7),
        ),
    ),
    (
        QuotaWindows(11, 1000),
        (
            (474, 915, 2523, 241.6435207355617, 10441, 14789, 595.4),
            (1603, 1603, 949, 342.7781617138908, 10129, 24591, 474.4),
            (2200, 2200, 2744, 579.5263844862949, 10726, 51434, -14.7),
            (11259, 12104, 122, 363.2987334539568, 10501, 27649, 951.3),
            (12261, 12261, 610, 415.18108463126293, 10658, 33592, 845.0),
            (15351, 15351, 2092, 279.8256044391597, 10092, 18148, 681.6),
            (15668, 15751, 2635, 520.3011818528402, 10492, 44098, 194.6),
            (26685, 26826, 787, 77.60575880090721, 10141, 0, 942.6),
            (27407, 27407, 721, 140.64540197724307, 10722, 4358, 856.5),
            (27477, 27477, 1730, 300.0370644922165, 10792, 21588, 517.5),
            (27748, 27758, 2125, 532.4133823091432, 10073, 43557, 120.6),
            (27909, 28710, 1578, 692.3690773067332, 10025, 59385, -99.8),
        ),
    ),
)


@pytest.mark.parametrize(("windows", "rows"), OBSERVED)
def test_rates_throttle_times_and_tokens_are_those_of_apache_kafka(
    windows: QuotaWindows, rows: tuple[Row, ...]
) -> None:
    rate, bucket = SampledRate(windows), TokenBucket(LIMIT, windows, 0)
    for recorded_ms, measured_ms, value, expected, period_ms, wait_ms, tokens in rows:
        rate.record(value, recorded_ms)
        assert rate.measure(measured_ms) == pytest.approx(expected)
        assert rate.elapsed_ms(measured_ms) == period_ms
        assert throttle_ms(rate, LIMIT, measured_ms) == wait_ms
        assert throttle_ms(rate, LIMIT, measured_ms, 1000) == min(wait_ms, 1000)
        bucket.spend(value / 5, measured_ms)
        assert bucket.tokens(measured_ms) == pytest.approx(tokens)


def test_a_rate_below_the_limit_waits_for_nothing() -> None:
    rate = SampledRate(QuotaWindows())
    assert rate.measure(5) == 0
    rate.record(999, 5)
    assert throttle_ms(rate, 100, 6) == 0


def test_debts_are_paid_before_more_is_spent() -> None:
    bucket = TokenBucket(2.0, QuotaWindows(10, 1000), 0)
    assert bucket.capacity == 20
    assert bucket.try_to_spend(25, 0), "what is there may be overspent once"
    assert not bucket.try_to_spend(1, 0)
    assert bucket.throttle_ms(0) == 2500
    assert bucket.throttle_ms(2500) == 0 and bucket.try_to_spend(1, 2500)
    bucket.change_rate(0.5, 2500)
    assert bucket.throttle_ms(2500) == 2000
    bucket.spend(-100, 2500)
    assert bucket.tokens(2500) == bucket.capacity == 5


@pytest.mark.parametrize("limit", [1e-3, 1e-300, 5e-324])
def test_a_throttle_time_has_a_place_in_a_response(limit: float) -> None:
    """Administrators stop a client by a tiny quota, because 0 is refused."""
    rate, bucket = SampledRate(QuotaWindows()), TokenBucket(limit, QuotaWindows(), 0)
    rate.record(1 << 22, 0)
    bucket.spend(1 << 22, 0)
    assert throttle_ms(rate, limit, 0) == bucket.throttle_ms(0) == THROTTLE_MS_MAX == 0x7FFFFFFF
