"""Headless Chromium driven by Selenium."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
    WebDriverException,
)
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

WIDTHS: Final = {"desktop": 1280, "phone": 390}
FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
HEIGHT: Final = 900
ResultT = TypeVar("ResultT")
TRANSIENT_ERRORS: Final = (NoSuchElementException, StaleElementReferenceException)


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser window.

    :ivar screenshots: folder of the screenshots.
    """

    driver: Chrome
    screenshots: Path

    def open(self, url: str) -> None:
        self.driver.get(url)

    def find(self, selector: str, *, seconds: float = 20) -> WebElement:
        """Return the first matching element, waiting until there is one."""
        return self.wait_until(
            lambda: self.driver.find_element(By.CSS_SELECTOR, selector), what=selector, seconds=seconds
        )

    def text(self, selector: str) -> str:
        """Return the visible text of the first matching element, or an empty string."""
        elements = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return elements[0].text if elements else ""

    def click(self, selector: str) -> None:
        self.find(selector).click()

    def type(self, selector: str, text: str) -> None:
        self.find(selector).send_keys(text)

    def press(self, key: str) -> None:
        """Send a key to the focused element."""
        ActionChains(self.driver).send_keys(key).perform()

    def wait_until(self, condition: Callable[[], ResultT], *, what: str, seconds: float = 20) -> ResultT:
        """Return the result of a condition as soon as it is true."""
        wait = WebDriverWait(self.driver, seconds, poll_frequency=0.1, ignored_exceptions=TRANSIENT_ERRORS)
        return wait.until(lambda _: _on_one_page(condition), message=f"not within {seconds:.0f} s: {what}")

    def enter_frame(self, selector: str) -> None:
        self.driver.switch_to.frame(self.find(selector))

    def leave_frame(self) -> None:
        self.driver.switch_to.default_content()

    def console_messages(self) -> list[str]:
        """Return the console's errors and warnings since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def emulate(self, *, width: int, dark: bool) -> None:
        """Set the viewport width and the colour scheme of the system."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=False
        )

    def screenshot(self, name: str) -> None:
        """Save screenshots of the whole page: desktop and phone, light and dark."""
        for size, width in WIDTHS.items():
            for dark in (False, True):
                self.emulate(width=width, dark=dark)
                screenshot = self.command("Page.captureScreenshot", captureBeyondViewport=True)
                file = self.screenshots / f"{name}-{size}-{'dark' if dark else 'light'}.png"
                file.write_bytes(base64.b64decode(screenshot["data"]))
        self.emulate(width=WIDTHS["desktop"], dark=False)

    def overflows(self) -> bool:
        return bool(self.driver.execute_script("return document.documentElement.scrollWidth > innerWidth"))

    def command(self, name: str, **arguments: Any) -> Any:
        """Send a command of the Chrome DevTools Protocol."""
        return self.driver.execute_cdp_cmd(name, arguments)


def _on_one_page(condition: Callable[[], ResultT]) -> ResultT:
    """:raises StaleElementReferenceException: another page came; Chromium has no error of its own for it."""
    try:
        return condition()
    except WebDriverException as error:
        if "aborted by navigation" not in (error.msg or ""):
            raise
        raise StaleElementReferenceException(error.msg) from error


@contextmanager
def open_browser(screenshots: Path) -> Iterator[Browser]:
    """Start Chromium with a fresh profile, and quit it at the end."""
    screenshots.mkdir(parents=True, exist_ok=True)
    options = ChromeOptions()
    options.binary_location = find_program("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "WARNING"})
    profile = tempfile.mkdtemp(prefix="servicebus-pair-chromium-")
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={WIDTHS['desktop']},{HEIGHT}"):
        options.add_argument(flag)
    driver = Chrome(options=options, service=Service(find_program("chromedriver")))
    try:
        yield Browser(driver, screenshots)
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def find_program(program: str) -> str:
    """Return the path of a program. :raises FileNotFoundError: it is not installed."""
    found = os.environ.get(program.upper()) or shutil.which(program)
    if found is None:
        raise FileNotFoundError(f"{program} is not installed: run apt-get install chromium chromium-driver")
    return found
