"""A real Chromium without a window, as somebody uses it who looks at the page."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from selenium.webdriver.remote.webelement import WebElement

__all__ = ["SIZES", "Browser", "browser"]

SIZES: Final = {"desk": 1280, "phone": 390}
FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
HIGH: Final = 900
FoundT = TypeVar("FoundT")
PASSING: Final = (NoSuchElementException, StaleElementReferenceException)


@dataclass(frozen=True, slots=True)
class Browser:
    """What one can see and do.

    :ivar pictures: folder of the screenshots.
    """

    driver: Chrome
    pictures: Path

    def open(self, url: str) -> None:
        """Go to an address."""
        self.driver.get(url)

    def find(self, selector: str, *, seconds: float = 20) -> WebElement:
        """Return the first element that fits, as soon as there is one."""
        return self.until(lambda: self.driver.find_element(By.CSS_SELECTOR, selector), what=selector, seconds=seconds)

    def text(self, selector: str) -> str:
        """Return what is to be read in an element, or nothing where there is none."""
        elements = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return elements[0].text if elements else ""

    def click(self, selector: str) -> None:
        """Press a button or follow a link."""
        self.find(selector).click()

    def type(self, selector: str, text: str) -> None:
        """Write into a field."""
        self.find(selector).send_keys(text)

    def press(self, key: str) -> None:
        """Press a key, wherever one is."""
        ActionChains(self.driver).send_keys(key).perform()

    def until(self, condition: Callable[[], FoundT], *, what: str, seconds: float = 20) -> FoundT:
        """Wait until a condition is true; return what it returned."""
        wait = WebDriverWait(self.driver, seconds, poll_frequency=0.1, ignored_exceptions=PASSING)
        return wait.until(lambda _: condition(), message=f"not within {seconds:.0f} s: {what}")

    def enter_frame(self, selector: str) -> None:
        """Look into a frame from now on."""
        self.driver.switch_to.frame(self.find(selector))

    def leave_frame(self) -> None:
        """Look at the whole window again."""
        self.driver.switch_to.default_content()

    def logged(self) -> list[str]:
        """Return the errors and warnings in the browser's console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def shape(self, *, width: int, dark: bool) -> None:
        """Be so wide, and light or dark, as the system says."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=HIGH, deviceScaleFactor=1, mobile=False)

    def picture(self, name: str) -> None:
        """Keep what the whole page looks like: on a desk and on a phone, light and dark."""
        for size, width in SIZES.items():
            for dark in (False, True):
                self.shape(width=width, dark=dark)
                taken = self.command("Page.captureScreenshot", captureBeyondViewport=True)
                file = self.pictures / f"{name}-{size}-{'dark' if dark else 'light'}.png"
                file.write_bytes(base64.b64decode(taken["data"]))
        self.shape(width=SIZES["desk"], dark=False)

    def overflows(self) -> bool:
        """Tell whether the page is wider than the window."""
        return bool(self.driver.execute_script("return document.documentElement.scrollWidth > innerWidth"))

    def command(self, name: str, **arguments: Any) -> Any:
        """Ask Chromium itself, by its DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, arguments)


@contextmanager
def browser(pictures: Path) -> Iterator[Browser]:
    """Start a Chromium that knows nothing of any other, and end it."""
    pictures.mkdir(parents=True, exist_ok=True)
    options = ChromeOptions()
    options.binary_location = needed("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "WARNING"})
    profile = tempfile.mkdtemp(prefix="servicebus-pair-chromium-")
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={SIZES['desk']},{HIGH}"):
        options.add_argument(flag)
    driver = Chrome(options=options, service=Service(needed("chromedriver")))
    try:
        yield Browser(driver, pictures)
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def needed(program: str) -> str:
    """Return where a program is. :raises FileNotFoundError: it is not installed."""
    found = os.environ.get(program.upper()) or shutil.which(program)
    if found is None:
        raise FileNotFoundError(
            f"{program} is not installed: the set-up does it (apt-get install chromium chromium-driver)"
        )
    return found
