// Colour maps: a number from 0 to 1 becomes a colour, and back. Nothing but data is coloured by them.
//
// 0 is always the page's own background: the first tenth fades from the page into the map, which runs from its light
// end on a light page and from its dark end on a dark one. So a pixel names its value, to about 1/100 (256 steps; some of the darkest look alike).

// The values of matplotlib (cividis: Nunez, Anderton and Renslow 2018, CC0), 256 times rrggbb.
const CIVIDIS =
  "00224e00234f00245100255300255400265600275800285900285b00295d002a5f002a61002b62002c64002c66002d68002e6a002e6c" +
  "002f6d00306f0030700031700031710132710533710833700c34700f357012357014367016377018376f1a386f1c396f1e3a6f203a6f" +
  "213b6e233c6e243c6e263d6e273e6e293f6e2a3f6d2b406d2d416d2e416d2f426d31436d32436d33446d34456c35456c36466c38476c" +
  "39486c3a486c3b496c3c4a6c3d4a6c3e4b6c3f4c6c404c6c414d6c424e6c434e6c444f6c45506c46516c47516c48526c49536c4a536c" +
  "4b546c4c556c4d556c4e566c4f576c50576c51586d52596d535a6d545a6d555b6d555c6d565c6d575d6d585e6d595e6e5a5f6e5b606e" +
  "5c616e5d616e5e626e5e636f5f636f60646f61656f62656f636670646770656870656870666970676a71686a71696b716a6c716b6d72" +
  "6c6d726c6e726d6f726e6f736f70737071737172747272747273747374757474757575757676767777767777777878777979777a7a78" +
  "7b7a787c7b787d7c787e7c787e7d787f7e78807f78817f788280798381798482798582798683798784788885788985788a86788b8778" +
  "8c88788d88788e89788f8a78908b78918b78928c78928d78938e78948e77958f779690779791779892779992779a93769b94769c9576" +
  "9d95769e96769f9775a09875a19975a29975a39a74a49b74a59c74a69c74a79d73a89e73a99f73aaa073aba072aca172ada272aea371" +
  "afa471b0a571b1a570b3a670b4a76fb5a86fb6a96fb7a96eb8aa6eb9ab6dbaac6dbbad6dbcae6cbdae6cbeaf6bbfb06bc0b16ac1b26a" +
  "c2b369c3b369c4b468c5b568c6b667c7b767c8b866c9b965cbb965ccba64cdbb63cebc63cfbd62d0be62d1bf61d2c060d3c05fd4c15f" +
  "d5c25ed6c35dd7c45cd9c55cdac65bdbc75adcc859ddc858dec958dfca57e0cb56e1cc55e2cd54e4ce53e5cf52e6d051e7d150e8d24f" +
  "e9d34eead34cebd44bedd54aeed649efd748f0d846f1d945f2da44f3db42f5dc41f6dd3ff7de3ef8df3cf9e03afbe138fce236fde334" +
  "fee434fee535fee636fee838";
const VIRIDIS =
  "44015444025645045745055946075a46085c460a5d460b5e470d60470e6147106347116447136548146748166848176948186a481a6c" +
  "481b6d481c6e481d6f481f70482071482173482374482475482576482677482878482979472a7a472c7a472d7b472e7c472f7d46307e" +
  "46327e46337f463480453581453781453882443983443a83443b84433d84433e85423f85424086424186414287414487404588404688" +
  "3f47883f48893e49893e4a893e4c8a3d4d8a3d4e8a3c4f8a3c508b3b518b3b528b3a538b3a548c39558c39568c38588c38598c375a8c" +
  "375b8d365c8d365d8d355e8d355f8d34608d34618d33628d33638d32648e32658e31668e31678e31688e30698e306a8e2f6b8e2f6c8e" +
  "2e6d8e2e6e8e2e6f8e2d708e2d718e2c718e2c728e2c738e2b748e2b758e2a768e2a778e2a788e29798e297a8e297b8e287c8e287d8e" +
  "277e8e277f8e27808e26818e26828e26828e25838e25848e25858e24868e24878e23888e23898e238a8d228b8d228c8d228d8d218e8d" +
  "218f8d21908d21918c20928c20928c20938c1f948c1f958b1f968b1f978b1f988b1f998a1f9a8a1e9b8a1e9c891e9d891f9e891f9f88" +
  "1fa0881fa1881fa1871fa28720a38620a48621a58521a68522a78522a88423a98324aa8325ab8225ac8226ad8127ad8128ae8029af7f" +
  "2ab07f2cb17e2db27d2eb37c2fb47c31b57b32b67a34b67935b77937b87838b9773aba763bbb753dbc743fbc7340bd7242be7144bf70" +
  "46c06f48c16e4ac16d4cc26c4ec36b50c46a52c56954c56856c66758c7655ac8645cc8635ec96260ca6063cb5f65cb5e67cc5c69cd5b" +
  "6ccd5a6ece5870cf5773d05675d05477d1537ad1517cd2507fd34e81d34d84d44b86d54989d5488bd6468ed64590d74393d74195d840" +
  "98d83e9bd93c9dd93ba0da39a2da37a5db36a8db34aadc32addc30b0dd2fb2dd2db5de2bb8de29bade28bddf26c0df25c2df23c5e021" +
  "c8e020cae11fcde11dd0e11cd2e21bd5e21ad8e219dae319dde318dfe318e2e418e5e419e7e419eae51aece51befe51cf1e51df4e61e" +
  "f6e620f8e621fbe723fde725";

export const MAPS = ["cividis", "viridis", "grey"];
export const SCALES = { unit: "0 to 1", row: "each row by its largest", gamma: "0 to 1, square root" };
const FADE = 26;

function table(hex) {
  return Array.from({ length: 256 }, (_, i) => [0, 2, 4].map((at) => parseInt(hex.slice(6 * i + at, 6 * i + at + 2), 16)));
}

const TABLES = {
  cividis: table(CIVIDIS),
  viridis: table(VIRIDIS),
  grey: Array.from({ length: 256 }, (_, i) => [i, i, i]),
};

const mix = (a, b, share) => a.map((value, i) => Math.round(value + (b[i] - value) * share));

/** 256 colours [r, g, b]; index 0 is the paper. */
export function palette(name, paper, isDark) {
  const plain = isDark ? TABLES[name] : [...TABLES[name]].reverse();
  return plain.map((color, i) => (i < FADE ? mix(paper, plain[FADE], i / FADE) : color));
}

/** -1 (orange) over 0 (the paper) to 1 (blue): 511 colours, for differences. */
export function diverging(paper, isDark) {
  const ends = isDark ? [[255, 158, 66], [94, 170, 255]] : [[150, 72, 0], [12, 78, 150]];
  return Array.from({ length: 511 }, (_, i) => mix(paper, ends[i < 255 ? 0 : 1], Math.abs(i - 255) / 255));
}

/** The index of the colour nearest to a pixel: the inverse of `palette`. */
export function inverse(colors, pixel) {
  let best = 0;
  let least = Infinity;
  colors.forEach((color, i) => {
    const distance = color.reduce((sum, value, c) => sum + (value - pixel[c]) ** 2, 0);
    if (distance < least) {
      [best, least] = [i, distance];
    }
  });
  return best;
}

/** What a weight becomes before it is coloured. */
export function scaled(value, scale, rowMaximum) {
  if (scale === "row") {
    return rowMaximum > 0 ? value / rowMaximum : 0;
  }
  return scale === "gamma" ? Math.sqrt(Math.max(value, 0)) : value;
}

export const indexOf = (value) => Math.max(0, Math.min(255, Math.round(value * 255)));
export const css = ([r, g, b], alpha = 1) => `rgba(${r},${g},${b},${alpha})`;

/** Black or white, whichever reads better on a colour. */
export function inkOn([r, g, b]) {
  const linear = [r, g, b].map((c) => ((c / 255) <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179 ? "#000" : "#fff";
}

/** The page's colours as canvases need them, from the style sheet. */
export function theme() {
  const probe = document.createElement("i");
  document.body.append(probe);
  const read = (name) => {
    probe.className = `probe-${name}`;
    return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  };
  const found = Object.fromEntries(["paper", "ink", "muted", "line", "chosen", "whatif"].map((name) => [name, read(name)]));
  probe.remove();
  found.isDark = found.paper[0] + found.paper[1] + found.paper[2] < 384;
  return found;
}
