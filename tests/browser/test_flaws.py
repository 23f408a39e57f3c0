"""What the contact sheet takes for a flaw, on a page made to have some."""

import pytest

from tests.browser.contact_sheet import FLAWS
from tests.browser.lab import Lab, find_browser

pytestmark = pytest.mark.skipif(
    find_browser() is None,
    reason="needs a chromium or google-chrome on the PATH (Debian: apt-get install chromium)",
)
# A canvas makes an image of so many pixels, which is then shown over 40 points.
IMAGES = """
<div class="jp-Cell"></div>
<script>
for (const [alt, pixels] of [["coarse", 40], ["sharp", 80]]) {
  const canvas = Object.assign(document.createElement("canvas"), { width: pixels, height: pixels });
  const image = Object.assign(new Image(40, 40), { alt, src: canvas.toDataURL() });
  document.querySelector(".jp-Cell").append(image);
}
const svg = "<svg xmlns='http://www.w3.org/2000/svg' width='10' height='10'/>";
const drawn = Object.assign(new Image(40, 40), { alt: "drawn" });
drawn.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
document.querySelector(".jp-Cell").append(drawn);
</script>
"""


def test_an_image_of_fewer_pixels_than_it_covers_is_blurred(lab: Lab):
    browser = lab.page.context.browser
    assert browser is not None
    page = browser.new_page(device_scale_factor=2)
    try:
        page.set_content(IMAGES)
        page.wait_for_function("[...document.images].every((image) => image.complete)")
        assert page.evaluate(FLAWS) == [
            'cell 0: an image of 40 pixels is blurred over 80: "coarse"',
        ]
    finally:
        page.close()
