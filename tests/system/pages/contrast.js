// Function body: returns texts below its argument with too little contrast (WCAG 2.2, 1.4.3) and controls that are too
// small (2.5.8). Each visible text is compared with the background behind it; links are exempt from the minimum of 24 by 24.

const channels = (text) => {
  const canvas = channels.canvas ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
};
const blend = ([r, g, b, a], under) => [r, g, b].map((each, index) => each * a + under[index] * (1 - a));
const background = (element) => {
  if (element === null) return blend(channels(getComputedStyle(document.documentElement).backgroundColor), [255, 255, 255]);
  const own = channels(getComputedStyle(element).backgroundColor);
  return own[3] === 1 ? own.slice(0, 3) : blend(own, background(element.parentElement));
};
const luminance = (rgb) => rgb.map((each) => each / 255).map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
  .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
const isVisible = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && element.closest(".visually-hidden") === null
  && !(element.closest(".skip") && document.activeElement !== element);
const opacity = (element) => element === null ? 1 : Number(getComputedStyle(element).opacity) * opacity(element.parentElement);
const problems = [];
const texts = document.createTreeWalker(arguments[0], NodeFilter.SHOW_TEXT);
for (let node = texts.nextNode(); node !== null; node = texts.nextNode()) {
  const element = node.parentElement;
  if (node.data.trim() === "" || !isVisible(element) || element.closest("noscript")) continue;
  const style = getComputedStyle(element);
  const behind = background(element);
  const colour = channels(element instanceof SVGElement ? style.fill : style.color);
  const lights = [luminance(blend([...colour.slice(0, 3), colour[3] * opacity(element)], behind)), luminance(behind)].sort((a, b) => a - b);
  const contrast = (lights[1] + 0.05) / (lights[0] + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (contrast < (large ? 3 : 4.5)) problems.push(`contrast ${contrast.toFixed(2)}: ${node.data.trim().slice(0, 40)}`);
}
for (const control of arguments[0].querySelectorAll("button, summary, select, input, textarea")) {
  if (!isVisible(control)) continue;
  const { width, height } = (control.type === "checkbox" ? control.closest("label") : control).getBoundingClientRect();
  if (width < 24 || height < 24) problems.push(`small: ${control.outerHTML.slice(0, 60)} ${width}x${height}`);
}
return problems;
