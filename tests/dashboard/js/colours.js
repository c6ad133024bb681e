// Whether the first chart has lines in several colours.
() => {
  const canvas = document.querySelector('.chart canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const hues = new Set();
  for (let at = 0; at < data.length; at += 4) {
    const [red, green, blue, alpha] = data.slice(at, at + 4);
    if (alpha > 200 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) hues.add([red, green, blue].map((part) => part >> 6).join());
  }
  return hues.size > 1;
}
