"""The numbers along an axis are round, and go around what is drawn."""

NOTHING = (float("inf"), float("-inf"))  # the least and the largest of no numbers
AXES = {
    (0.337, 4.91, 4): ["0", "2", "4", "6"],
    (0, 100, 4): ["0", "50", "100"],
    (0.02, 0.57, 4): ["0", "0.2", "0.4", "0.6"],
    (-3.2, 1.9, 4): ["−4", "−2", "0", "2"],
    (1_000, 2_300_000, 4): ["0", "1M", "2M", "3M"],
    (0, 12_500, 5): ["0", "5,000", "10,000", "15,000"],
    (0, 1.9e-6, 4): ["0", "5.0e−7", "1.0e−6", "1.5e−6", "2.0e−6"],
    (5, 5, 4): ["4", "6"],
    (*NOTHING, 4): ["0", "0.5", "1.0"],
}
WHOLE = {
    (0, 3, 5): ["0", "1", "2", "3"],
    (60, 1500, 5): ["500", "1,000", "1,500"],
    (37, 37, 5): ["37"],
    (*NOTHING, 5): [],
}


def test_an_axis_has_round_numbers(language, opened):
    with opened(language, text="The old farmer") as at:

        def ticks(function, *given):
            script = "([name, given]) => import('regard/ticks.js').then((module) => module[name](...given))"
            return at.page.evaluate(script, [function, given])

        for axis, names in AXES.items():
            shown = ticks("ticks", *axis)
            assert [tick["name"] for tick in shown] == names
            assert axis[:2] == NOTHING or shown[0]["value"] <= axis[0] <= axis[1] <= shown[-1]["value"]
        for axis, names in WHOLE.items():
            assert [tick["name"] for tick in ticks("ticksWithin", *axis, {"whole": True})] == names
