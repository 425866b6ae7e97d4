"""The web page of the embedded Service Bus, used in Chromium at the widths of a desk and of a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from servicebus_emulator import EmulatorProcess
from tests.system.pages.accessibility import contrast_problems, keyboard_problems, naming_problems, structure_problems
from tests.system.pages.browser import WIDTHS, Browser, open_browser

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.timeout(120)]

KEY = "a key of one's own"
LONG = "news/" + "x" * 120


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("screenshots")) as opened:
        yield opened


def choose(browser: Browser, entity: str) -> None:
    browser.find("#entities button")
    browser.driver.execute_script(
        "[...document.querySelectorAll('#entities button')].find((each) => each.textContent === arguments[0]).click()",
        entity,
    )
    browser.wait_until(lambda: browser.text("#entity-title") == entity, what=entity)


def test_messages_and_faults(browser: Browser) -> None:
    with EmulatorProcess(["contoso", "contoso-dr"]) as process:
        served = process["contoso"]
        for path in ("flights", LONG):
            served.create_queue(path)
        served.create_topic("delays")
        served.create_subscription("delays", "long")
        browser.open(f"http://127.0.0.1:{served.admin_port}/")
        browser.wait_until(lambda: browser.text("#choose").startswith("Choose a queue"), what="what to do first")
        choose(browser, "flights")
        assert browser.text("#choose") == ""
        browser.type("#send-form [name=body]", "<b>UA1545</b> is boarding")
        browser.type("#send-form [name=properties]", '{"minutes": 90}')
        browser.click("#send-form button")
        browser.wait_until(lambda: "<b>UA1545</b> is boarding" in browser.text("#messages"), what="the message")
        assert "minutes: 90" in browser.text("#messages")
        browser.screenshot("messages")
        for width in WIDTHS.values():
            browser.emulate(width=width, dark=False)
            assert not browser.overflows()
        assert contrast_problems(browser) == []
        assert [*naming_problems(browser), *structure_problems(browser), *keyboard_problems(browser)] == []
        browser.click("#messages button")
        browser.wait_until(lambda: browser.text("#messages") == "No messages.", what="an empty queue")
        browser.click("#queues button:nth-child(2)")
        browser.wait_until(lambda: "DeadLetteredByPage" in browser.text("#messages"), what="the dead letter")
        browser.type("#fault-form [name=kind]", "server-busy")
        browser.type("#fault-form [name=entity]", "flights")
        browser.type("#fault-form [name=count]", "3")
        browser.click("#fault-form button")
        browser.wait_until(lambda: "server-busy" in browser.text("#faults"), what="the fault")
        assert [each["count"] for each in served.faults] == [3]
        browser.screenshot("fault")
        browser.click("#faults button")
        browser.wait_until(lambda: browser.text("#faults") == "None is set.", what="no fault")
        choose(browser, "delays")
        browser.type("#send-form [name=properties]", "nonsense")
        browser.click("#send-form button")
        browser.wait_until(lambda: "JSON" in browser.text("#error"), what="the error")
        assert browser.console_messages() == []
        browser.click("#namespaces a")
        browser.wait_until(lambda: browser.text("h1") == "contoso-dr", what="the other namespace")


def test_a_key_of_its_own_is_asked_for(browser: Browser) -> None:
    with EmulatorProcess(["contoso"], key=KEY) as process:
        served = process["contoso"]
        served.create_queue("flights")
        browser.open(f"http://localhost:{served.admin_port}/")
        browser.type("#login-form [name=key]", "wrong")
        browser.click("#login-form button")
        browser.wait_until(lambda: "InvalidSignature" in browser.text("#error"), what="the refusal")
        browser.driver.execute_script("document.querySelector('#login-form [name=key]').value = ''")
        browser.screenshot("login")
        browser.type("#login-form [name=key]", KEY)
        browser.click("#login-form button")
        choose(browser, "flights")
        browser.driver.refresh()
        choose(browser, "flights")


def test_nothing_else_is_needed() -> None:
    folder = Path(__file__).parents[2] / "provider" / "servicebus_emulator" / "admin" / "page"
    for name in ("page.html", "page.js"):
        text = (folder / name).read_text()
        assert "http://" not in text
        assert "innerHTML" not in text
