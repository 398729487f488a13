"""S4Forecaster: frames and arrays in, forecasts with intervals out, and words about what is wrong."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
import pytest
from sklearn.base import clone

from torchs4.data.time_steps import step_of
from torchs4.estimators import S4Forecaster, load_estimator
from torchs4.estimators.forecast_training import usual_windows
from torchs4.estimators.series_input import read_all
from torchs4.layers import S4BlockConfig, S4Config
from torchs4.models import ForecastModelConfig

if TYPE_CHECKING:
    from pathlib import Path

ROWS, HORIZON = 400, 12
TINY = ForecastModelConfig(
    features=8, num_layers=1, block=S4BlockConfig(layer=S4Config(state_size=4)), patch=4
)


def quick(**options: Any) -> S4Forecaster:
    options = {"model": TINY, "steps": 40, "history": 24, "random_state": 0, "verbose": 0, **options}
    return S4Forecaster(learning_rate=0.01, **options)


def daily(rows: int = ROWS, seed: int = 0) -> pandas.DataFrame:
    """Hours of something that goes up and down with the day, with noise, and of something else."""
    draws = np.random.default_rng(seed)
    index = pandas.date_range("2024-01-01", periods=rows, freq="h")
    wave = np.sin(2 * np.pi * np.arange(rows) / 24)
    frame = pandas.DataFrame({"load": 50 + 10 * wave + draws.normal(size=rows)}, index=index)
    frame["price"] = 3 - wave + 0.1 * draws.normal(size=rows)
    return frame


@cache
def fitted() -> S4Forecaster:
    return quick(calendar=False).fit(daily(), target="load", horizon=HORIZON)


def test_a_forecast_goes_on_with_the_series() -> None:
    forecast = fitted().predict()
    assert list(forecast.columns) == [
        "load",
        "load lower 0.95",
        "load upper 0.95",
        "load lower 0.8",
        "load upper 0.8",
    ]
    assert (forecast.index == pandas.date_range("2024-01-17 16:00", periods=HORIZON, freq="h")).all()
    truth = 50 + 10 * np.sin(2 * np.pi * np.arange(ROWS, ROWS + HORIZON) / 24)
    # The last value is far worse.
    assert np.abs(forecast["load"] - truth).mean() < 0.6 * np.abs(daily()["load"].iloc[-1] - truth).mean()


def test_intervals_lie_inside_one_another_around_the_forecast() -> None:
    forecast = fitted().predict()
    columns = ["load lower 0.95", "load lower 0.8", "load", "load upper 0.8", "load upper 0.95"]
    assert (forecast[columns].diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)


def test_a_shorter_horizon_is_the_beginning_of_a_longer_one() -> None:
    whole = fitted().predict()
    pandas.testing.assert_frame_equal(fitted().predict(5), whole.iloc[:5])
    with pytest.raises(ValueError, match="horizon is 13, but this forecaster was fit for 12 rows ahead"):
        fitted().predict(13)


def test_newer_rows_are_gone_on_from() -> None:
    newer = daily(500).iloc[-30:]
    forecast = fitted().predict(data=newer)
    assert forecast.index[0] == newer.index[-1] + pandas.Timedelta("1h")
    with pytest.raises(ValueError, match="There are 10 rows to go on from; expected at least 24"):
        fitted().predict(data=newer.iloc[:10])


def test_newer_rows_of_another_step_are_refused() -> None:
    newer = daily(500)
    with pytest.raises(ValueError, match="Rows are 2:00:00 apart; they were 1:00:00 apart when"):
        fitted().predict(data=newer.iloc[::2])
    with pytest.raises(ValueError, match="data has no times, but what was fit had"):
        fitted().predict(data=newer.reset_index(drop=True))


def test_the_same_seed_gives_the_same_forecasts() -> None:
    again = quick(calendar=False).fit(daily(), target="load", horizon=HORIZON)
    pandas.testing.assert_frame_equal(again.predict(), fitted().predict())


def test_saving_keeps_the_forecasts(tmp_path: Path) -> None:
    fitted().save(tmp_path / "saved")
    for loaded in (S4Forecaster.load(tmp_path / "saved"), load_estimator(tmp_path / "saved")):
        pandas.testing.assert_frame_equal(loaded.predict(), fitted().predict())
        assert loaded.model == TINY
    newer = daily(500).iloc[-30:]
    pandas.testing.assert_frame_equal(loaded.predict(data=newer), fitted().predict(data=newer))


def test_damaged_files_are_told(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    (tmp_path / "series.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"series\.npz is missing or damaged"):
        S4Forecaster.load(tmp_path)
    description = json.loads((tmp_path / "estimator.json").read_text())
    (tmp_path / "estimator.json").write_text(json.dumps({**description, "format": 9}))
    with pytest.raises(ValueError, match="has format 9"):
        S4Forecaster.load(tmp_path)
    for damage in ({"fitted": {}}, {"parameters": {"depth": 3}}):
        (tmp_path / "estimator.json").write_text(json.dumps({**description, **damage}))
        with pytest.raises(ValueError, match="damaged"):
            S4Forecaster.load(tmp_path)
    (tmp_path / "estimator.json").write_text("{")
    with pytest.raises(ValueError, match="damaged, or was not written"):
        S4Forecaster.load(tmp_path)
    with pytest.raises(ValueError, match="There is no folder"):
        S4Forecaster.load(tmp_path / "nowhere")


def test_it_can_be_cloned() -> None:
    assert clone(fitted()).get_params() == fitted().get_params()
    assert not hasattr(clone(fitted()), "members_")


def test_several_targets_a_covariate_and_a_calendar() -> None:
    frame = daily().assign(holiday=lambda frame: (frame.index.day_of_week == 6).astype(float))
    forecaster = quick(calendar=True, steps=10).fit(
        frame, target=["price", "load"], horizon=HORIZON, known=["holiday"]
    )
    assert forecaster.calendar_ == ("hour of day", "day of week")
    with pytest.raises(ValueError, match=r"holiday are known ahead: pass future=…"):
        forecaster.predict()
    future = pandas.DataFrame({"holiday": np.ones(HORIZON)})
    forecast = forecaster.predict(future=future)
    assert [name for name in forecast.columns if " " not in name] == ["price", "load"]
    assert abs(forecast["load"].mean() - 50) < 15
    assert abs(forecast["price"].mean() - 3) < 3
    assert not forecaster.predict(future=0 * future).equals(forecast)
    drawn = forecaster.plot(future=future, target="load").axes[0].get_lines()[1]
    assert np.allclose(drawn.get_ydata(), forecast["load"])
    with pytest.raises(ValueError, match=r"holiday are known ahead: pass future=…"):
        forecaster.plot()


@cache
def planned() -> S4Forecaster:
    frame = daily().assign(holiday=lambda frame: (frame.index.day_of_week == 6).astype(float))
    frame = frame.reset_index(names="when")
    return quick(calendar=False, steps=2).fit(
        frame, target=["load", "price"], horizon=HORIZON, known=["holiday"], time="when"
    )


def test_what_is_known_ahead_is_found_by_its_times() -> None:
    with pytest.raises(
        ValueError, match=r"future=…, a frame .* and 12 rows, those of 2024-01-17 16:00:00 to 2024-01-18 03"
    ):
        planned().predict()
    ahead = daily(500).assign(holiday=0.0).reset_index(names="when")[["when", "holiday"]]
    ahead.loc[ROWS : ROWS + HORIZON, "holiday"] = 1.0
    expected = planned().predict(future=pandas.DataFrame({"holiday": np.ones(HORIZON)}))
    pandas.testing.assert_frame_equal(planned().predict(future=ahead), expected)
    with pytest.raises(
        ValueError, match=r"future has rows of 2024-01-01 00:00:00 to .*none of which is ahead"
    ):
        planned().predict(future=ahead.iloc[:24])
    with pytest.raises(ValueError, match="future has 5 rows of those ahead, none for 2024-01-17 21:00:00"):
        planned().predict(future=ahead.iloc[: ROWS + 5])
    with pytest.raises(ValueError, match="future has 3 rows of those ahead"):
        planned().predict(future=ahead[["holiday"]].iloc[:3])
    with pytest.raises(ValueError, match="future has no column 'holiday'"):
        planned().predict(future=ahead[["when"]].assign(other=1.0))


def test_a_calendar_is_taken_where_it_helps() -> None:
    assert quick(steps=5).fit(daily()[["load"]], horizon=HORIZON).calendar_ in (
        (),
        ("hour of day", "day of week"),
    )
    assert quick(steps=5).fit(daily()["load"].to_numpy(), horizon=HORIZON).calendar_ == ()
    with pytest.raises(ValueError, match="calendar needs dates"):
        quick(calendar=True).fit(daily()["load"].to_numpy(), horizon=HORIZON)


def test_arrays_are_series_without_times() -> None:
    forecast = quick(steps=5).fit(daily().to_numpy(), target=1, horizon=3).predict()
    assert list(forecast.index) == [ROWS, ROWS + 1, ROWS + 2]
    assert "1" in forecast.columns


def test_many_series_share_one_model_and_keep_their_units() -> None:
    parts = [
        daily(200)[["load"]].assign(place="here"),
        (100 * daily(200, 1)[["load"]]).assign(place="there"),
    ]
    frame = pandas.concat(parts)
    forecaster = quick(calendar=False).fit(frame, target="load", horizon=HORIZON, series="place")
    forecast = forecaster.predict()
    assert forecast.index.names == ["place", "time"]
    assert abs(forecast.loc["here", "load"].mean() - 50) < 10
    assert abs(forecast.loc["there", "load"].mean() - 5000) < 1000
    dictionary = {"here": daily(200)[["load"]], "there": 100 * daily(200, 1)[["load"]]}
    other = quick(calendar=False).fit(dictionary, target="load", horizon=HORIZON).predict()
    assert np.allclose(other.to_numpy(), forecast.to_numpy())


def test_an_ensemble_is_the_mean_of_its_members() -> None:
    forecaster = quick(calendar=False, steps=10, ensemble=2).fit(daily(), target="load", horizon=HORIZON)
    assert len(forecaster.members_) == 2
    whole = forecaster.predict()["load"]
    forecaster.widening_ = 0.0 * forecaster.widening_
    members, parts = forecaster.members_, []
    for member in members:
        forecaster.members_ = [member]
        parts.append(forecaster.predict()["load"])
    assert np.allclose(whole, np.mean(parts, axis=0), atol=1e-3)


def test_backtest_measures_errors_and_coverage_on_rows_that_took_no_part() -> None:
    forecaster = quick(calendar=False)
    found = forecaster.backtest(daily(600), target="load", horizon=HORIZON)
    assert not hasattr(forecaster, "members_")
    row = found.scores.loc["load"]
    assert row["mae"] < 0.5 * row["last value mae"]
    # Days are alike, and a week is too long ago to say more.
    days = daily(600)["load"].diff(24).iloc[480:].abs().mean()
    assert row["last day mae"] == pytest.approx(days, rel=0.2)
    assert 0.6 < row["coverage 0.8"] < 0.97
    assert 0.85 < row["coverage 0.95"] <= 1
    forecasts = found.forecasts
    assert len(forecasts) == found.windows * HORIZON
    # Every forecast was made before what it is about.
    assert (forecasts["origin"] < forecasts["time"]).all()
    assert forecasts["origin"].min() >= daily(600).index[479]
    assert np.allclose(forecasts["value"], daily(600)["load"].loc[forecasts["time"]].to_numpy())
    assert np.abs(forecasts["value"] - forecasts["forecast"]).mean() == pytest.approx(row["mae"])


def test_a_backtest_says_where_the_last_week_was_better() -> None:
    draws = np.random.default_rng(0)
    week = np.tile(draws.normal(size=7), 80)
    index = pandas.date_range("2024-01-01", periods=len(week))
    frame = pandas.DataFrame({"load": week + 0.01 * draws.normal(size=len(week))}, index)
    with pytest.warns(
        UserWarning, match=r"last week is better .* sees 3 rows, and a week has 7: try history=7"
    ):
        scores = quick(history=3, steps=2).backtest(frame, horizon=7).scores.loc["load"]
    assert scores["last week mae"] < 0.05 < scores["mae"]


def test_a_week_of_hours_is_seen_unless_somebody_says_otherwise() -> None:
    series = read_all(daily(1000), ())[1]
    assert usual_windows(series, 24, None, 0.15).history == 168
    assert usual_windows(series, 24, 96, 0.15).history == 96
    assert usual_windows([series[0]._replace(times=None)], 24, None, 0.15).history == 96


def test_a_picture_shows_history_forecast_and_interval() -> None:
    figure = fitted().plot(truth=daily(ROWS + HORIZON).iloc[-HORIZON:], rows=48)
    (axes,) = figure.axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["history", "95% interval", "80% interval", "forecast", "what came"]
    history, forecast, *_ = axes.get_lines()
    assert len(history.get_ydata()) == 48
    assert np.allclose(forecast.get_ydata(), fitted().predict()["load"])
    with pytest.raises(ValueError, match="There is no target 'price'"):
        fitted().plot(target="price")


def test_what_came_is_drawn_where_it_came() -> None:
    later = daily(ROWS + HORIZON)
    (axes,) = fitted().plot(truth=later.iloc[-5:]).axes
    came = axes.get_lines()[2].get_ydata()
    assert np.isnan(came[:-5]).all()
    assert np.allclose(came[-5:], later["load"].iloc[-5:])
    with pytest.raises(
        ValueError, match=r"truth has rows of 2024-01-01 00:00:00 to .*none of which is ahead"
    ):
        fitted().plot(truth=later.iloc[:HORIZON])


def test_a_picture_has_a_panel_for_each_target(monkeypatch: pytest.MonkeyPatch) -> None:
    future = pandas.DataFrame({"holiday": np.ones(HORIZON)})
    figure = planned().plot(future=future)
    assert [axes.get_title(loc="left")[:5] for axes in figure.axes] == ["load:", "price"]
    assert len(planned().plot(future=future, target="price").axes) == 1
    monkeypatch.setattr("torchs4.estimators.forecaster._MOST_PANELS", 1)
    (axes,) = planned().plot(future=future).axes
    assert axes.get_title(loc="left").endswith("(1 of 2; target and name choose others)")


def test_times_come_back_as_they_came() -> None:
    zoned = daily().tz_localize("Europe/Berlin")
    forecaster = quick(calendar=False, steps=2).fit(zoned, target="load", horizon=3)
    assert forecaster.predict().index[0] == zoned.index[-1] + pandas.Timedelta("1h")
    assert str(forecaster.predict().index.tz) == "Europe/Berlin"
    years = pandas.DataFrame({"year": np.arange(1600, 2000), "load": daily()["load"].to_numpy()})
    index = quick(steps=2).fit(years, target="load", time="year", horizon=3).predict().index
    assert index.dtype.kind == "i"
    assert list(index) == [2000, 2001, 2002]


def test_forecasts_of_business_days_leave_weekends_out() -> None:
    frame = daily().set_index(pandas.bdate_range("2022-01-03", periods=ROWS))
    forecaster = quick(calendar=False, steps=2).fit(frame, target="load", horizon=HORIZON)
    expected = pandas.bdate_range("2022-01-03", periods=ROWS + HORIZON)[-HORIZON:]
    assert list(forecaster.predict().index) == list(expected)
    # A fortnight does not tell by itself that weekends are no gaps.
    (axes,) = forecaster.plot(truth=daily(HORIZON).set_index(expected).iloc[:8]).axes
    assert np.isfinite(axes.get_lines()[2].get_ydata()).sum() == 8
    with pytest.raises(ValueError, match="they were 1 day of Mon, Tue, Wed, Thu, Fri apart"):
        forecaster.predict(data=daily().set_index(pandas.date_range("2024-01-01", periods=ROWS)))


def changed(change: Any) -> pandas.DataFrame:
    frame = daily().reset_index(names="date").astype({"load": object})
    return change(frame)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda f: f, {"target": "lod"}, "data has no column 'lod'; it has 'load', 'price'"),
        (lambda f: f, {"time": "when"}, "data has no column 'when'"),
        (
            lambda f: f.assign(load=f["load"].where(f.index != 7, "much")),
            {},
            "column 'load', row 8: found 'much'",
        ),
        (
            lambda f: f.assign(load=f["load"].where(f.index != 7, np.inf)),
            {},
            "column 'load', row 8: found inf",
        ),
        (lambda f: f.iloc[:30], {}, "The series has 30 rows, too few for a horizon of 12"),
        (lambda f: f.iloc[:100], {"history": 300}, "too few for a horizon of 12 and a history of 300"),
        (lambda f: f.assign(load=3.0), {}, "'load' is always 3: there is nothing to forecast"),
        (
            lambda f: f.iloc[[0, 1, 1, *range(2, 400)]],
            {},
            "row 3: 2024-01-01 01:00:00 stands in the row before",
        ),
        (lambda f: f.iloc[[1, 0, *range(2, 400)]], {}, "row 2: 2024-01-01 00:00:00 comes after"),
        (
            lambda f: f.assign(date=f["date"].where(f.index != 9, f["date"] + pandas.Timedelta("7min"))),
            {},
            "row 10: 2024-01-01 09:07:00 is 1:07:00 after the row before",
        ),
        (
            lambda f: f.assign(date=f["date"].astype(str).where(f.index != 3, "soon")),
            {},
            "row 4: found 'soon'",
        ),
        (lambda f: f.assign(load=np.nan), {}, "400 of 400 numbers are missing"),
        (lambda f: f, {"intervals": (1.5,)}, "intervals holds 1.5"),
        (lambda f: f, {"horizon": 0}, "horizon is 0"),
        (lambda f: f, {"covariates": ["wind"]}, "has no column 'wind'"),
    ],
)
def test_what_is_wrong_is_told(change: Any, options: dict[str, Any], message: str) -> None:
    own = {name: options.pop(name) for name in ("history", "intervals") if name in options}
    columns = {"target": "load", "horizon": HORIZON, "time": "date", **options}
    with pytest.raises(ValueError, match=message):
        quick(**own).fit(changed(change), **columns)


@pytest.mark.parametrize(
    ("frequency", "first"),
    [
        ("15min", "2024-03-01 00:00"),
        ("D", "2024-03-01"),
        ("MS", "2020-01-01"),
        ("ME", "2020-01-31"),
        ("YS", "2000-01-01"),
        ("B", "2024-03-01 17:30"),
    ],
)
def test_times_ahead_follow_the_calendar(frequency: str, first: str) -> None:
    whole = pandas.date_range(first, periods=30, freq=frequency).to_numpy().astype("M8[us]")
    assert (step_of(whole[:20]).stamps(whole[19], 11)[1:] == whole[20:]).all()
