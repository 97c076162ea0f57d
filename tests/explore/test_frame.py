"""The frame of the page: what is there before an answer, and in which order answers are asked for."""

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import expect

SENTENCE = "The old farmer helps the child."
OTHER = "The dog sees a big garden."


def asked_names(requests):
    """What was asked, in order: names of questions and of matrices."""
    bodies = [json.loads(request.post_data) for request in requests]
    return [body.get("what") or body["name"] for body in bodies]


def test_the_frame_is_there_before_the_first_answer(trained, opened):
    with opened(trained, text=SENTENCE) as at:
        with at.session.lock:  # as if it computed for somebody else
            at.page.reload()
            at.page.get_by_label("Text").wait_for()
            assert at.page.locator("#head h1").inner_text() == trained.folder.path.name
            assert at.page.locator("#panel").inner_text() == "Computing …"
            assert at.page.locator("#head .model-output").count() == 0
            at.page.get_by_label("Text").fill("typed meanwhile")
        at.ready()
        assert at.page.locator("#head .model-output").count() == 1
        assert at.page.get_by_label("Text").input_value() == "typed meanwhile"


def test_before_the_runs_are_known_there_is_a_title(trained, opened):
    with opened(trained, text=SENTENCE) as at:
        waiting = []
        at.page.route("**/api/runs", lambda route: waiting.append(route))
        with at.page.expect_request("**/api/runs"):
            at.page.reload()
        assert at.page.locator("#head h1").inner_text() == "Regard"
        assert at.page.locator("#panel").inner_text() == "Computing …"
        waiting.pop().continue_()
        at.ready()
        at.page.unroute("**/api/runs")


def test_the_runs_are_listed_however_many_questions_wait(trained, opened):
    with opened(trained, text=SENTENCE) as at:

        def ask(number):
            content = {"what": "overview", "input": {"text": SENTENCE[:number]}}
            request = urllib.request.Request(at.address + "api/ask", data=json.dumps(content).encode())
            with urllib.request.urlopen(request) as response:
                return response.status

        with ThreadPoolExecutor(60) as pool:
            with at.session.lock:
                answers = [pool.submit(ask, 3 + number % 5) for number in range(60)]
                with urllib.request.urlopen(at.address + "api/runs", timeout=20) as response:
                    assert json.load(response)["first"] == {"text": SENTENCE}
                assert not any(answer.done() for answer in answers)
            assert [answer.result() for answer in answers] == [200] * 60


def test_a_tab_whose_view_takes_long_shows_nothing_of_the_old_one(trained, opened):
    with opened(trained, text=SENTENCE) as at:
        at.view("Output")
        with at.session.lock:
            at.page.get_by_role("tab", name="Layers").click()
            assert at.page.get_by_role("tab", selected=True).inner_text() == "Layers"
            assert at.page.get_by_role("tab", selected=True).evaluate("tab => tab === document.activeElement")
            at.page.locator("#panel .waiting").wait_for()
            assert at.page.locator("#panel").inner_text().split("\n")[0] == "Layers"
            assert "Candidates" not in at.page.locator("#panel").inner_text()
            at.page.get_by_role("tab", name="Output").click()  # its answers are here
            at.page.get_by_role("heading", name="Candidates").wait_for()
        at.view("Layers")
        assert at.page.locator("#panel .waiting").count() == 0


def test_a_quick_view_replaces_the_old_one_without_anything_between(trained, opened):
    with opened(trained, text=SENTENCE) as at:
        for name in ("Layers", "Output"):
            at.view(name)
        at.page.evaluate("""() => {
            window.seen = [];
            const look = () => window.seen.push(document.querySelectorAll('#panel .waiting').length);
            new MutationObserver(look).observe(document.getElementById('panel'), {childList: true});
        }""")
        at.view("Layers")  # all answers are here
        assert at.page.evaluate("seen") == [0]


def test_nothing_of_the_old_input_stands_beside_a_new_one(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=output") as at:
        old = at.page.locator("#panel").inner_text()
        with at.session.lock:
            at.page.get_by_label("Text").fill(OTHER)
            at.page.get_by_role("button", name="Inspect").click()
            at.page.locator("#panel .waiting").wait_for()
            assert at.page.locator("#head .model-output, #tokens .token").count() == 0
            assert at.page.get_by_label("Text").input_value() == OTHER
            at.page.get_by_role("tab", name="Layers").click()
            assert at.page.get_by_role("tab", selected=True).inner_text() == "Layers"
        at.ready("Layers")
        assert at.page.locator("#head .model-output strong").inner_text() == trained.translate([OTHER])[0]
        assert at.view("Output").inner_text() != old


def test_the_focus_stays_on_a_control_whose_view_takes_long(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=heads") as at:
        button = at.page.get_by_role("button", name="layer 1, head 2")
        button.focus()
        with at.session.lock:
            at.page.evaluate(
                "input => { location.hash = `#view=heads&input=${JSON.stringify(input)}`; }", {"text": OTHER}
            )
            at.page.locator("#panel .waiting").wait_for()
            assert at.page.locator("#panel").evaluate("panel => panel === document.activeElement")
        at.ready("Heads")
        assert button.evaluate("button => button === document.activeElement")


def test_questions_of_the_open_view_go_first_and_none_is_lost(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=output") as at:
        requests = []
        at.page.on("request", lambda request: requests.append(request) if request.post_data else None)
        with at.session.lock:
            at.page.get_by_role("tab", name="Layers").click()
            at.page.locator("#panel .waiting h2", has_text="Layers").wait_for()
            sent = asked_names(requests)
            assert len(sent) == 2  # the third waits
            at.page.get_by_role("tab", name="Words").click()
            at.page.locator("#panel .waiting h2", has_text="Words").wait_for()
            assert asked_names(requests) == sent
        at.ready("Words")
        left = ({"lens", "contributions", "norms"} - set(sent)).pop()
        expect(at.page.locator("#panel .waiting")).to_have_count(0)
        at.view("Layers")
        names = asked_names(requests)
        assert names.index("merges") < names.index(left) and names.count(left) == 1
        for request in requests:
            assert request.response().ok


def test_a_question_asked_again_goes_first_as_well(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=output") as at:
        order = at.page.evaluate("""async () => {
            const { Served } = await import('regard/source.js');
            const source = new Served();
            const order = [];
            const asking = (turn, what) => {
                const mine = Object.assign(Object.create(source), { turn });
                return mine.cached({ what }, async () => { order.push(what); });
            };
            const first = ['a', 'b', 'c', 'd'].map((what) => asking(1, what));
            await Promise.all([...first, asking(2, 'e'), asking(3, 'd')]);
            return order;
        }""")
        assert order == ["a", "b", "d", "e", "c"]


def test_a_server_that_has_ended_is_told_once(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=output") as at:
        at.page.evaluate("() => { window.fetch = () => Promise.reject(new TypeError('gone')); }")
        panel = at.view("Words")
        assert panel.get_by_role("alert").count() == 1
        assert "The server is not responding." in panel.inner_text()


def test_a_long_answer_is_scrolled_by_keyboard(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=words") as at:
        answer = at.page.locator("#head .model-output")
        assert answer.evaluate("region => region.scrollHeight <= region.clientHeight")
        at.page.locator("#head .model-output strong").evaluate(
            "text => { text.textContent = 'ein langes Wort '.repeat(900); }"
        )
        assert answer.evaluate("region => region.clientHeight") < 200
        answer.focus()
        at.page.keyboard.press("End")
        moved = "region => new Promise(done => { const look = () => "
        moved += "region.scrollTop > 0 ? done(true) : requestAnimationFrame(look); look(); })"
        assert answer.evaluate(moved)


def test_a_file_unpacks_its_answers_once_for_all_views(page_on_disk, from_disk):
    with from_disk(page_on_disk) as at:
        at.page.evaluate("""() => {
            const parse = JSON.parse;
            window.lengths = [];
            JSON.parse = (text) => { window.lengths.push(text.length); return parse(text); };
        }""")
        for name in ("Heads", "Output", "Layers"):
            at.view(name)
        assert max(at.page.evaluate("lengths"), default=0) < 10_000
