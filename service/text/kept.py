"""Spans of a text that no translation may change: addresses, code, format strings, numbers, emoji, unknown characters.

    spans = kept_spans("Copied %1$s to /tmp/a.txt 🎉", is_known)
    [span.text for span in spans]    # ["%1$s", "/tmp/a.txt", "🎉"]

Spans are *hard* or *soft*. A hard one means nothing to a model: it is better hidden from it (`service/text/forms.py`).
A soft one, a number with or without its unit, belongs to the grammar (*1 apple*, *2 apples*): the model sees it first,
and is checked afterwards.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import regex

from service.text.capitals import in_capitals
from service.text.code import COMMAND, OPTIONS, code_before_comment, is_code

Kind = Literal[
    "code",
    "url",
    "email",
    "format",
    "tag",
    "path",
    "handle",
    "identifier",
    "term",
    "name",
    "marker",
    "emoji",
    "symbol",
    "invisible",
    "unknown",
    "amount",
    "number",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

SOFT_KINDS: frozenset[Kind] = frozenset({"amount", "number"})

_MAX_LENGTH = 400
"""No pattern looks further, so that the time stays linear; addresses and code may be longer by what repeats."""

_GENERIC_DOMAINS = (
    "com|org|net|edu|gov|mil|int|info|biz|io|dev|app|ai|xyz|online|site|eu|uk|de|fr|es|pt|nl|pl|ru|jp|cn|br|au|ca|ch"
)
_FILE_ENDINGS = (
    "txt|md|rst|pdf|docx?|xlsx?|pptx?|odt|ods|odp|csv|tsv|json|ya?ml|toml|xml|html?|css|js|ts|jsx|tsx|py|ipynb|rb|go|rs"
    "|java|kt|c|h|cc|cpp|hpp|cs|php|sh|bat|ps1|exe|dll|so|msi|deb|rpm|apk|jar|zip|tar|gz|tgz|bz2|xz|7z|rar|iso|log|ini|cfg|conf|env|lock|sql|db"
    "|png|jpe?g|gif|svg|webp|ico|mp3|mp4|wav|ogg|flac|mkv|avi|mov|srt|vtt|epub|ttf|otf|woff2?|po|pot|mo"
)
_PREFIX = "[QRYZEPTGMkhdcmμµnpf]"
_UNIT = rf"""(?!\s?[ap]m\b|s\b)(?:
      (?:%%|%|‰|°[CFK]?|℃|℉|′|″)
    | (?:{_PREFIX}?(?:m|g|s|A|K|V|W|Wh|Hz|N|Pa|J|C|F|Ω|H|T|L|l|t|eV|cal|bar|B|b|bit|bps|px|dB|Ah|VA|lm|lx|Bq|Sv|mol)
        | [KMGT]i(?:B|b|bit))
      (?:[²³]|\^[23])?(?:/(?:{_PREFIX}?(?:m|g|s|L|l|h|W|mol|px)|min|kg|d|y)(?:[²³]|\^[23])?)?
    | (?:tbsp|tsp)(?:\.(?=[ ]\p{{Ll}}))?
    | km/h|h|min|kn|ha|mph|kph|rpm|fps|dpi|ppi|ppm|ppb|pt|rem|em|vh|vw|ft|yd|mi|lbs?|oz|psi|gal|kcal|dBm
    | EUR|USD|GBP|CHF|JPY
    )(?![\w/%])"""

# Groups of digits, as in 1,234.5  2024-05-17  10:30  192.168.0.1  555-0142-7789  1/2  4×4, with a sign before it; or
# thousands parted by spaces: 1 234,5. The last two are powers of ten: 1e-5  2.5E+10  10^-3.
_NUMBER = (
    r"(?:(?<![\w.,)\]])[-+−±~≈](?=\d))?"
    r"(?:\d{1,3}(?:[ \u00a0\u202f]\d{3}(?!\d))++(?:[.,]\d+)?|\d+(?:(?:[.,:/'’·×⁄^*x–—-]|\u202f)\d+)*+)"
    r"(?:[eE][-+−]?\d{1,4}+(?!\w)|\^[-−]\d+)?+"
)
_CURRENCY = r"(?:(?<![\w.])(?:US|CA|AU|NZ|HK|MX|[ACSR])(?=\$))?\p{Sc}"
# Thousands, millions, billions: $5M, £10k, $1.5 bn.
_MAGNITUDE = r"(?:(?:[kKmMbBT]|[bmt]n)|[ \u00a0\u202f](?:[KMB]|[bmt]n))(?![\w-])"
_AMOUNT = (
    rf"(?:{_CURRENCY}[ \u00a0\u202f]?{_NUMBER}(?:{_MAGNITUDE})?+"
    rf"|{_NUMBER}(?:[ \u00a0\u202f]?(?:{_CURRENCY}|{_UNIT})|(?:[kKmMbBT]|[bmt]n)[ \u00a0\u202f]?{_CURRENCY}))"
)

# What stands in the brackets of a call: text in quotes, signs, names in a row; not the end of a word(s), nor prose.
_ARGUMENTS = r"""(?=
      ["'`$&*\[{(-] | \d+[,)] | [^()\n]{0,80}["=_\[\]{}+*<>&|$\\] | [^()\n]{0,80}\w\.\w
    | \w{1,40}+(?:,[ ]?\w{1,40}+){1,20}+\) | \w{5,40}+\)
    )(?:[^()\n]|\((?:[^()\n]|\([^()\n]{0,80}\)){0,80}+\)){1,200}+\)"""
_CALLED = r"[A-Za-z_]\w{0,60}+(?:(?:\.|::|->)[A-Za-z_]\w{0,60}+){0,4}+"

# A formula of short operands, as in x = y + 1, E = mc^2, a -> b; a dash alone may be one of prose.
_OPERAND = r"(?:\([A-Za-z]\w?\)|[A-Za-z]{1,3}\^-?\w++|[A-Za-z](?:\w|[A-Za-z]\d)?(?:\([a-z]\))?|\d+(?:\.\d+)?)(?!['’\w])"
_FORMULA = (
    rf"{_OPERAND}(?:[ ](?:[=!<>:+*]=|[=<>+*/]|[-=]>|<-)[ ]|[=!]=|[=^]|[-=]>|[<>]=?(?![\w, ]{{1,40}}>))"
    rf"(?:{_OPERAND}|-\d+)"
    rf"(?:(?:[ ](?:[=!<>]=|[=<>+*/-]|[-=]>)[ ]|[=+^]|[-=]>){_OPERAND})*+"
)
_CLOCK = r"\d{1,2}+(?:[:.]\d\d){0,2}[ \u00a0\u202f]?(?:[ap]\.[ ]?m\.|[ap]m|[AP]M|[AP]\.M\.)(?!\w)"
_COUNTED = r"(?:No|Nos|Nr|Vol|Fig|Figs|Sec|Eq|pp)\.[ \u00a0]?\d+(?:[.,–-]\d+)*+"

# A command in quotes: it has options, and none of the words that tell about them.
_QUOTED_COMMAND = (
    r"(?<=[\"'“‘«])(?!(?:use|using|with|without|add|pass|try|run|type|set|option|options|see|and|or|enter|give|call"
    r"|say|no|not|flag|flags|remove|specify|the|a|an|like|via|by|to|for)[ ])"
    r"[a-z][\w.+/-]{0,40}+(?:[ ][\w.+/-]{1,40}+){0,1}"
    r"(?:[ ]--?[A-Za-z][\w-]{0,40}+(?:=[^\s\"'“”‘’]{1,80}+)?"
    r"(?:[ ][^\s\"'“”‘’-][^\s\"'“”‘’]{0,80}+){0,1}){1,8}+(?=[\"'”’»])"
)

# Addresses of networks that leave zeros out: ::1, fe80::1%eth0, [2001:db8::1]:443, 2001:db8::/32.
_HEX = r"[0-9A-Fa-f]{1,4}+"
_SHORT_ADDRESS = (
    rf"(?:{_HEX}(?::{_HEX}){{0,6}}+)?::(?:{_HEX}(?::{_HEX}){{0,6}}+(?:\.\d{{1,3}}+){{0,3}}+)?(?:%\w{{1,20}}+)?"
)

_TIMESTAMP = (
    r"(?:\d{4}-?\d\d-?\d\dT\d\d(?::?\d\d){0,2}(?:[.,]\d{1,9}+)?(?:Z|[-+]\d\d(?::?\d\d)?)?"
    r"|\d\d:\d\d(?::\d\d(?:[.,]\d{1,9}+)?)?Z)"
)
_ESCAPED_TAG = (
    r"&lt;/?[A-Za-z][\w:-]{0,60}+(?:\s++[\w:-]{1,60}+(?:=(?:\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'|&quot;[^\n]{0,200}?&quot;"
    r"|[^\s\"'&]{1,80}+))?){0,10}+\s*+/?&gt;"
)

# What is hard to type, written with a backslash: a letter, a line break or a tab (service/text/escapes.py).
_HEX_DIGIT = "[0-9A-Fa-f]"
_LETTER_ESCAPE = rf"\\(?:x{_HEX_DIGIT}{{2}}|u{_HEX_DIGIT}{{4}}|U{_HEX_DIGIT}{{8}}|u\{{{_HEX_DIGIT}{{1,6}}\}})"
# `\N` ends a line of a subtitle.
BLANK_ESCAPE = r"\\{1,3}(?:[nrt]|N(?=\p{Lu}[\p{Ll}\s'’]|\s|\Z|[^\w\\{]))"
# Latin letters beyond ASCII, and apostrophes within words: a model is shown what they mean.
SHOWN_LETTER = (
    rf"\\(?:x[C-Fc-f]{_HEX_DIGIT}|(?:u|U0000)(?:00[C-Fc-f]|01{_HEX_DIGIT}|02[0-4]){_HEX_DIGIT}"
    rf"|u\{{0{{0,3}}(?:[C-Fc-f]|1{_HEX_DIGIT}|2[0-4]){_HEX_DIGIT}\}})(?<![df]7\}}?)"
)
SHOWN_APOSTROPHE = (
    rf"(?=\\)(?<=\p{{L}}|{SHOWN_LETTER})(?:\\['’]|\\x27|\\u(?:0027|2019)|\\U0000(?:0027|2019)|\\u\{{0*(?:27|2019)\}})"
    rf"(?=\p{{L}}|{SHOWN_LETTER})"
)
_ASCII_LETTER = r"\\(?:x|u00|U000000|u\{0{0,4})(?:[46][1-9A-Fa-f]|[57][0-9Aa])\}?+"
# A letter behind a backslash that is none of these: of a path, a regular expression, a name.
_OTHER_ESCAPE = rf"(?!{_LETTER_ESCAPE}|{BLANK_ESCAPE})\\[A-Za-z]"
# TeX; a name counts without an argument if what it had behind `\n`, `\r` or `\t` would be no word.
_TEX = (
    r"\\(?:[A-Za-z]{2,40}+\*?+(?=[\[{])|(?:nabla|neq?|neg|newline|newpage|noindent|nonumber|not(?:in)?|theta|therefore|tilde"
    r"|times|triangle|raggedright|rceil|rfloor|rho|right(?:arrow)?)(?![A-Za-z]))"
)
_EXPRESSION_ESCAPE = r"\\[bBdDsSwW](?:[+*]|\{\d{1,3}(?:,\d{0,3})?\})"
# No part of a path: the line ends behind it.
_LAST_BLANK = rf"(?:[nrt](?:\\[nrt])*+(?![\w.$~-])|(?<=\.(?:{_FILE_ENDINGS})\\{{1,2}})[nrt])"
_NAME_IN_PATH = rf"(?!{_LAST_BLANK})[\w.$~@-]{{1,60}}+"
_NAMES_IN_PATH = rf"[\w.~@-]{{1,60}}+(?:\\{{1,2}}{_NAME_IN_PATH}){{1,20}}+"
# Names of more than one word, with a part of the path behind them: Program Files, new folder.
_SPACED_IN_PATH = (
    r"(?:(?:[ ](?!(?:and|as|at|by|for|from|in|into|is|of|on|or|that|the|then|to|with)[ ])[\w.$()-]++){1,3}+"
    r"(?=\\{1,2}[\w.]))?+"
)
_NETWORK_PATH = (
    rf"(?:\\\\[\w.$-]++(?:\\(?!{_LAST_BLANK})[\w.$-]++(?:(?:[ ][\w.$-]++){{1,3}}(?=\\\w\w))?+)++"
    r"|\\{4}[\w.$-]++(?:\\\\[\w.$-]++)++)"
)
_IN_DRIVE_PATH = r"""[^\s\\/:*?"<>|,;()]"""

# Behind a number of a version.
_RELEASE = r"(?i:alpha|beta|rc|dev|pre|preview|snapshot|final|ga|lts|nightly|canary|post|build|hotfix|milestone)"

# Behind a path: ?d=e&f, #part.
_QUERY = r"(?:\?(?=\w)[\w%&=+~/:-]++(?:\.[\w%&=+~/:-]++)*+)?+(?:\#\w++(?:[.-]\w++)*+)?+"

_SMALL = r"[\p{Ll}\p{Lo}\p{Lm}\p{Lt}\p{M}]*+"
_NOT_PLAIN = (
    rf"\p{{Lu}}\.\s\p{{Lu}}\.|\p{{Lu}}\p{{Ll}}{{1,3}}+\.\s?\d|pp\.\s?\d|\p{{Lu}}{{2,4}}+\s\d|CC\sBY"
    r"|\(?(?:[A-Za-z]|[ivxIVX]{2,4})\)\s"
    rf"|\p{{L}}\w?\w?\s[=+*/<>:!^-]|{COMMAND}"
    r"|[\"'“‘«][a-z][\w.+/-]*+(?:[ ][\w.+/-]++)?[ ]--?[A-Za-z]"
)
"""Words that others of the patterns begin with."""

_JOINING = r"(?:(?!\p{Latin}|\p{Greek}|\p{Cyrillic})[\p{L}\p{M}])"

# The order decides where two begin at the same place.
_STRUCTURED = regex.compile(
    rf"""
      # Plain words, which none of the others begins with, are stepped over at once.
      (?P<plain> (?<!\S)(?:
          (?!{_NOT_PLAIN})[("'“‘«]*+(?=\p{{L}})\p{{Lu}}*+{_SMALL}(?:['’-](?=\p{{L}})\p{{Lu}}*+{_SMALL})*+
          [.,;:!?)"'”’»]{{0,4}}+(?:\s++|\Z)
      )++ )
    # A line of one sign, as in a form or a table of contents.
    | (?P<run> (?P<sign>[^\w\s\p{{C}}])(?P=sign){{4,}}+ )
    | (?P<smiley> (?<!\S)<3(?!\S) | (?<!\S):[a-z][\w+-]*\w:?(?=[\s.,;!?)]|\Z)
        | (?<!\S)[:;=]['’]?[-^o]?[)(DPpOo/|\\3*\]\[]++(?=[\s.,!?]|\Z) )
    | (?P<dots> (?<!\.)\.(?:[ \u00a0\u202f]\.)++(?![\w.]) )
    | (?P<said> \[(?:sic|\.{{3}}|…)\] )
    | (?P<lone> (?<!\S)['’‘"“”](?!\S) )
    # Of the items of a list in a sentence: 1) bread and 2) milk, (a) tea or (b) coffee.
    | (?P<marker> (?<!\S)(?:
          (?:\d{{1,2}}\)(?=\s++\S|["'“‘«]?\p{{L}}) | (?:[A-Za-z]|[ivx]{{2,4}}|[IVX]{{2,4}})\)(?=\s++\S))
          (?<!\([^()\n]{{0,80}}\))
        | \((?:\d{{1,2}}|[b-hB-H]|[ivx]{{2,4}}|a(?=\)[^()\n]{{1,200}}\(b\))|i(?=\)[^()\n]{{1,200}}\(ii\)))\)(?=\s++\S)
      ) )
    # Bidi and zero-width marks, controls. A soft hyphen belongs to its word and goes with it; letters of scripts that
    # spell with joiners keep them.
    | (?P<invisible> (?:(?![\s\xad\u200c\u200d\U000e0020-\U000e007f])[\p{{Cc}}\p{{Cf}}]
        | (?<!{_JOINING})[\u200c\u200d](?!{_JOINING})
      )++ )
    # Wherever they begin: behind a word, or with a colon.
    | (?P<glued> (?<=\w)(?:https?|ftps?|sftp|wss?)://(?:[^\s<>"“”«»‘’`\p{{Co}}\\]|\\(?![nrt"'\\]))++ )
    | (?P<network> \[{_SHORT_ADDRESS}\](?::\d{{1,5}}+)?+
        | (?<![\w.:/-])(?!::\w*[g-zG-Z])(?:(?!::(?!\w))|(?<!\S)(?=::(?!\S))){_SHORT_ADDRESS}(?:/\d{{1,3}}+)?+(?![\w:]) )
    # Nothing begins inside a word, or with these.
    | (?:(?<!\w)|(?!\w))(?![\s\p{{M}}\p{{Cf}},;:!?"'“”‘’«»()])(?:
      # What has a backslash in its first word, which is seldom.
      (?=[\w.~@-]{{0,60}}+\\|\$)(?:
      (?P<shown> (?:{SHOWN_LETTER}|{SHOWN_APOSTROPHE})\p{{L}}*+ )
    | (?P<share> (?<![\w\\]){_NETWORK_PATH} )
    | (?P<tex> (?<![\w$])\$(?:\\[A-Za-z]++|(?=[^$\n]{{0,200}}(?:{_TEX}|{_OTHER_ESCAPE}))[^$\n]{{1,200}}?)\$(?![\w$])
        | {_TEX} | {_EXPRESSION_ESCAPE} | {_OTHER_ESCAPE}[A-Za-z]{{0,40}}+ )
    | (?P<escaped> (?<![\w\\])\p{{L}}{{0,40}}+{_ASCII_LETTER}(?:\p{{L}}|{_ASCII_LETTER}|{SHOWN_LETTER})*+ )
    | (?P<backslashed> (?<![\w\\])
          (?=[\w.~][\w.~@-]{{0,60}}+(?:\\{{1,2}}[nrt][\w.$~@-]{{0,60}}+){{0,8}}+\\?{_OTHER_ESCAPE}(?![A-Za-z]{{0,40}}+\*?+[{{\[]))
          {_NAMES_IN_PATH}(?:\\(?!{_LAST_BLANK}))?+
        | (?<![\w\\]){_NAMES_IN_PATH}(?<=\.(?:{_FILE_ENDINGS})\.?) )
      )
    | (?P<relative> (?<![\w.)\]}}"'’!?\\])(?:\.{{1,2}}|~)(?:\\{{1,2}}{_NAME_IN_PATH})++(?:\\(?!{_LAST_BLANK}))?+
        | (?<![\w%])%[A-Za-z_]\w{{0,40}}%(?:\\{{1,2}}{_NAME_IN_PATH})++(?:\\(?!{_LAST_BLANK}))?+
        # Not a line break behind a drive: a sentence goes on there.
        | (?<![\w:])[A-Z]:\\[nrt](?=[,;)]|\.?\Z|[ ]\p{{Ll}}) )
    | (?P<code> (?<!`)(?P<ticks>`{{1,3}})(?!`)[^\n]{{1,{_MAX_LENGTH}}}?(?<!`)(?P=ticks)(?!`) )
    | (?P<url>
          (?:(?:https?|ftps?|sftp|ssh|git|wss?|file|data|irc|magnet)://|(?:mailto|tel|urn|doi|javascript):(?=[^\s])|www\.(?=\w))
          (?:[^\s<>"“”«»‘’`\p{{Co}}\\]|\\(?![nrt"'\\]))++
        | (?<![\w.@-])(?:[a-z0-9](?:[a-z0-9-]{{0,61}}[a-z0-9])?\.){{1,5}}(?:{_GENERIC_DOMAINS})(?![\w@(-]|\.\w)
          (?::\d{{1,5}})?(?:[/?\#](?:[^\s<>"“”«»‘’`\p{{Co}}\\]|\\(?![nrt"'\\]))*+)?
      )
    | (?P<scp> (?<![\w.+-])\w[\w.-]{{0,63}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,8}}:(?!//)[\w.~-][\w.~/-]*\w )
    | (?P<email> (?<![\w.+-])\w[\w.!\#$%&'*+/=?^{{|}}~-]{{0,63}}+@(?:[\w-]{{1,63}}+\.){{1,8}}+\w{{2,24}}+ )
    | (?P<email2> (?<![\w.+-])\w[\w.+-]{{0,63}}+@(?:[\w-]{{1,63}}\.){{1,8}}\w{{2,24}} )
    | (?P<at> (?<![\w@.])\w[\w.+-]{{0,40}}@\w[\w-]*+(?![\w@]) )
    | (?P<clock> (?<![\w.,:/-]){_CLOCK} )
    | (?P<counted> (?<![\w.]){_COUNTED} )
    | (?P<initials> (?<![\w.])\p{{Lu}}\.(?:[ ]\p{{Lu}}\.)++ | (?<![\w.])(?:\p{{Lu}}\.){{3}}(?=[ ]\p{{Lu}}\p{{Ll}})
        | (?<![\w.])(?:e\.[ ]?g|i\.[ ]?e|Ph\.[ ]?D|[BM]\.(?:Sc|Ed)|[BM]\.B\.A)\.(?!\w) )
    | (?P<command2> {_QUOTED_COMMAND} )
    | (?P<command> (?<![\w.-]){COMMAND}{OPTIONS}*+ )
    | (?P<formula> (?<![\w.,/'’-]){_FORMULA}(?![\w(]) )
    | (?P<format>
          \{{\{{[^\n]{{0,200}}?\}}\}}+ | \{{%[^\n]{{0,200}}?%\}} | \{{\#[^\n]{{0,200}}?\#\}} | <%[^\n]{{0,200}}?%>
        | <\?(?:[A-Za-z]|=)[^\n]{{0,200}}?\?>
        | \{{\s*\w{{1,60}}\s*,\s*(?:plural|select|selectordinal|number|date|time|choice|spellout|ordinal|duration)\b
          (?:[^{{}}]|\{{(?:[^{{}}]|\{{(?:[^{{}}]|\{{[^{{}}]{{0,80}}\}}){{0,200}}+\}}){{0,200}}+\}}){{0,{_MAX_LENGTH}}}+\}}
        | [$\#%@]?\{{[^{{}}\s]{{0,80}}\}} | [$\#%@]?\{{\s?[\w.\[\]|:!-]{{1,60}}\s?\}} | \$\([\w.-]{{1,60}}\)
        | \[\[[\w.|-]{{1,60}}\]\] | \[%[\w.-]{{1,60}}%\]
        | %\(\w{{1,60}}\)[-\#0+]?\d{{0,3}}(?:\.\d{{1,3}})?[diouxXeEfFgGcrsa]
        | (?<![\d%])%(?:\d{{1,2}}\$)?[-+\#0]{{0,3}}(?:\d{{1,3}}|\*)?(?:\.(?:\d{{1,3}}|\*))?
          (?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcspn@](?![^\W_])
        | (?<![\d%])%L?\d{{1,2}}(?!\w) | (?<![\d%])%%
        | (?<![\w%])%[A-Za-z_]\w{{0,40}}%(?!\w) | (?<![\w$])\$\$?[A-Za-z_]\w{{0,40}}(?:/[\w.+@%~=:-]*\w)*+
        | {BLANK_ESCAPE} | \\[abfv0](?![A-Za-z\\]) | {_LETTER_ESCAPE} | \\["'\\]
      )
    | (?P<tag>
          <(?:[A-Za-z/][^<>\n]{{0,200}}|!--[^\n]{{0,200}}?--)>
        | {_ESCAPED_TAG}
        | &(?:\#\d{{1,10}}|\#[xX][0-9A-Fa-f]{{1,8}}|[A-Za-z]\w{{0,30}}); )
    | (?P<path>
          (?<![\w])[A-Za-z]:(?=[\\/](?!{_LAST_BLANK}))(?:[\\/]{{1,2}}(?!{_LAST_BLANK}){_IN_DRIVE_PATH}++{_SPACED_IN_PATH})*+(?:[\\/](?!{_LAST_BLANK}))?+
        | (?<![\w./~:<)\]}}])(?:~|\.{{1,2}})?/(?:[\w.+@%~=:-]++/)*+[\w.+@%~=-]++/?+{_QUERY}
        | (?<![\w.@/-])(?:[\w.@+-]++/)++[\w@+-]++\.(?:{_FILE_ENDINGS})(?!\w){_QUERY}
        | (?<![\w.@/-])[\w][\w-]*+(?:\.[\w-]+)*?\.(?:{_FILE_ENDINGS})(?![\w(-]|\.\w){_QUERY}
        | (?<![\w.*])\*\.\w{{1,8}}(?!\w)
        | (?<![\w.])\.(?:git|env|bash|zsh|profile|docker|npm|ssh|config|local|well-known)\w*+(?!\w)
      )
    | (?P<handle> (?<![\w@/.])@\w[\w.-]*+(?:@[\w.-]++|/\w[\w.-]*+)?
        | (?<![\w&/\#])\#(?:(?=[\w/.-]*\d)\w++(?:[-/.]\w++)*+|\w++) )
    | (?P<identifier>
        # Addresses of networks, digests, packages: 00:1A:2B:3C:4D:5E, sha256:9f86, npm:foo@1.
          (?<![\w.:/-])(?=[\d:]*+(?:[A-Fa-f]|::))(?:[0-9A-Fa-f]{{0,4}}+:){{2,7}}[0-9A-Fa-f]{{1,4}}(?![\w:])
        | (?<![\w.:/@-])[a-z][a-z\d]{{1,15}}+:(?=[a-z]*+[\d@])\w[\w@.-]*\w(?!\w)
        | (?<![\w.,:/+-]){_TIMESTAMP}(?!\w)
        | (?<![\w*)\]])\*{{1,2}}(?:(?:kw)?args|argv|[A-Za-z]\w*_\w+)(?![\w*])
        | (?<![\w.?:])\w{{1,40}}+\?\w{{1,40}}+:\w{{1,40}}+(?![\w:?])
        | (?<!\S)-[A-Za-z](?=[\s"'”’)]|\Z)
        | (?<![\w-])--[A-Za-z][\w-]*+(?:=[^\s,;]++)?
        | (?<![\w.])(?:(?<!->|::){_CALLED}\((?:\)|{_ARGUMENTS})|\w\(\w\));?+
        | (?<![\w.-])[A-Za-z]\w*+(?:::\w++)++
        | (?<![\w/.-])(?!w/o)\w(?:/\w)++(?![\w/])
        | (?<![\w~^])[A-Za-z]\w{{0,10}}+(?:(?P<raised>[~^])\w{{1,10}}+(?P=raised)\w{{0,10}}+)++(?![\w~^])
        | (?<![\w&+])\p{{L}}\w{{0,20}}+(?:(?:&amp;|[&+])\p{{L}}\w{{0,20}}+){{1,5}}+(?![\w&+;])
        | (?<![\w+\#])\p{{Lu}}(?:\+\+|\#)(?![\w+\#])
        | (?<![\w.&=-])\p{{L}}\w{{0,40}}+=
          (?:[A-Za-z]:\\[\w.:/\\-]{{0,60}}\w|[\p{{L}}\p{{N}}](?:(?:[\w.:/-]|\\(?![nrt])){{0,60}}\w)?+)(?![\w=])
        | (?<![\w.-])(?:[A-Z]?[a-z]++(?:[A-Z]++[a-z]++)++(?:[A-Z]++|\d++)?+|[a-z]{{2,}}+[A-Z]{{1,3}}+)
          (?![\w-]|['’]\p{{L}})
        | (?<!\w)\d{{1,3}}+(?:_\d{{3}})++(?!\w)
        | (?<![\w-])(?=\w*_\w)(?=\w*[A-Za-z])\w++(?:-\w++)*+
        | (?<![\w.-])(?:0x[0-9A-Fa-f]++|[0-9A-Fa-f]{{8}}-(?:[0-9A-Fa-f]{{4}}-){{3}}[0-9A-Fa-f]{{12}})(?!\w)
        # Norms, keys, elements of lists, types.
        | (?<![\w-])(?:ISO|IEC|IEEE|EN|DIN|RFC|ANSI|ASTM|ECMA|ITU|NIST|FIPS|CVE)(?:/(?:IEC|IEEE|EN|TS|TR))?[ -]
          \d(?:[\w.:-]*\w)?
        | (?<![\w-])(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD)[ ]\d(?:[\d.,]*\d)?(?![\w%])
        | [⌘⌥⇧⌃⎋]++[A-Z0-9]?+(?!\w)
        | (?<![\w.])[A-Za-z_]\w{{0,40}}+(?:\[\d{{1,4}}\])++(?!\w)
        | (?<![\w.])\p{{Lu}}\w{{0,40}}+<\p{{Lu}}\w{{0,40}}+(?:,[ ]?\p{{Lu}}\w{{0,40}}+){{0,4}}+>
        # An account's number (IBAN), in groups of four.
        | (?<![\w.-])[A-Z]{{2}}\d\d(?=[A-Z ]*+(?:\d[A-Z ]*+){{8}})(?:[ ][A-Z0-9]{{4}}){{3,7}}+
          (?:[ ]\d[A-Z0-9]{{0,2}})?+(?![\w-])
        | (?<![\w.-])[A-Z]{{2,3}}(?=(?:[ ]?\d){{8}})[ ]\d++(?:[ ]\d++)*+(?![\w-])
        # Licences, programs with their versions: Apache-2.0, GPL-3.0-or-later, BSD-3-Clause.
        | (?<![\w.-])\p{{L}}\w*+(?:-\p{{L}}\w*+)*+-\d++(?:(?:\.\d++)++|-(?=\p{{Lu}})\w++)(?:-\w++)*+(?!\w)
        | (?<![\w.-])CC[ ]BY(?:-(?:SA|NC|ND))*+(?:[ ]\d\.\d)?(?![\w-])
        | (?<![\w.,-])v\d++(?:\.\d++)++[-+][A-Za-z0-9]++(?:[.+-][A-Za-z0-9]++)*+(?!\w)
        | (?<![\w.,-])v\d++(?:\.\d++)*+(?:-[a-z]++(?:\.?\d++)?)?+(?!\w)
        | (?<![\w.,/-])\d++(?:\.\d++){{2,}}+[-+][A-Za-z][A-Za-z0-9]*+(?:[.+-][A-Za-z0-9]++)*+(?!\w)
        | (?<![\w.,/-])\d++(?:\.\d++)++(?:
              [-+.]?{_RELEASE}(?:[.-]?\d++)?+ | (?:a|b|rc)\d++
            )(?:[.+-][A-Za-z0-9]++)*+(?!\w)
        | (?<![\w.,/-])\d++(?:\.\d++)*+\.[xX](?![\w.])
        | (?<![\w.-])(?:utf|iso|windows)-\d++(?:-\d++)*+(?![\w-])
        | (?<![\w.,/-])[A-Z]{{2,}}[A-Z0-9]*+-[A-Z][A-Za-z]{{1,4}}-\d++(?![\w-])
        | (?<![\w.,/-])(?=[\d-]*+[A-Z])\d++(?:-(?:[A-Z]{{0,3}}\d[A-Z0-9]*+|[A-Z]{{1,2}}))++(?![\w-])
        | (?<![\w.,/-])(?!\d++(?:st|nd|rd|th|s|am|pm|AM|PM|h|e|er|x)\b)
          (?!{_NUMBER}(?:{_UNIT}|(?:[kKmMbBT]|[bmt]n)[ ]?\p{{Sc}}))
          (?:[A-Z][A-Z0-9]*+(?:-[A-Z0-9]++)*-(?:[A-Z0-9]*\d[A-Z0-9]*+|\d++(?!st|nd|rd|th|s\b)[A-Za-z]{{1,2}})|(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]++)(?![\w-])
      )
    | (?P<emoji>
          \p{{Regional_Indicator}}{{2}} | [0-9\#*]\ufe0f?\u20e3
        | (?![\d\#*])\p{{Extended_Pictographic}}(?:[\ufe0e\ufe0f\U000e0020-\U000e007f]|\p{{Emoji_Modifier}})*+
          (?:\u200d\p{{Extended_Pictographic}}(?:\ufe0f|\p{{Emoji_Modifier}})*+)*+
      )
    # A run of them ends before one that something else may begin with: a placeholder in bold, [@name], |%s|.
    | (?P<symbol> [\p{{Co}}|<>=^~\\{{}}\[\]_*`\#@][\p{{Co}}|>=^}}\]*]*+ )
    | (?P<amount> {_AMOUNT}(?:[ ]?[–—-][ ]?{_AMOUNT}){{0,3}}+ )
    | (?P<number> {_NUMBER} )
    )""",
    regex.VERBOSE,
)

# Text without any of these has none of the above, and is done with a hundred times faster.
_HINT = regex.compile(
    r"""[^\p{L}\p{M}\s.,;:!?'"‘’“”()-] | \w\.\w | \w\( | :: | -- | \w\?\w | (?<!\S)['’‘"“”](?!\S)
    | (?<!\S)-[A-Za-z](?!\p{L}) | (?<!\S)\(?(?:[A-Za-z]|[ivxIVX]{2,4})\)\s
    | \p{Ll}\p{Lu} | (?<!\w)\p{Lu}\.\s\p{Lu}\.
    | \b(?:git|npm|yarn|pip|conda|apt|brew|gem|cargo|docker|kubectl|sudo|import)\s
    | ([.,;:!?'"‘’“”()])\1{4} | [ ]\.[ ]\. | (?<!\S)[:;](?:['’]?[-^o]?[)(DPpOo]|[a-z])""",
    regex.VERBOSE,
)

# The most frequent of its signs, which Python's own engine sees many times faster.
_SIGN = re.compile(r"[0-9#$%&*+/<=>@\[\\\]^_`{|}~]")

# Most sentences: ASCII words with a mark behind them, none of which is a hint; Python's own engine soon sees that.
_PLAIN_WORD = (
    r"(?![A-Z]\.|(?:git|npm|yarn|pip|conda|apt|brew|gem|cargo|docker|kubectl|sudo|import) )"
    r"(?:[A-Z]++[a-z]*+|[a-z]++)"
)
_PLAIN = re.compile(rf"""(?:"?+{_PLAIN_WORD}(?:['-]{_PLAIN_WORD})*+[.,;:!?]?+"?+(?:[ ]|\Z))++""")

# Without a sentence around them they say nothing: U.S., J.R.R., a letter that is no word, several: a b c.
_INITIALS_ALONE = regex.compile(r"(?:\p{Lu}\.){2,8}+[.!?…]*+|[B-HJ-NP-XZb-hj-npq-xz]")
_LETTERS_ALONE = regex.compile(r"(?=.{0,4}[B-HJ-Zb-hj-z])[A-Za-z](?:,?[ ][A-Za-z])++")

# Longer than any word of an alphabet, also with hyphens in it: a key, a hash, a cat on the keyboard.
_LONGEST_WORD = 60
_BLANKS = frozenset(" \t")
_LONG_WORD = regex.compile(
    r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{N}\p{M}_]{61,}+|[\p{Latin}\p{Greek}\p{Cyrillic}\p{N}\p{M}_'’-]{161,}+"
)

_WORD_RUN = regex.compile(
    rf"[\p{{L}}\p{{M}}\p{{N}}_]++(?:['’-][\p{{L}}\p{{M}}\p{{N}}_]++)*+|(?!{SHOWN_LETTER}|{SHOWN_APOSTROPHE})\S"
)
_BETWEEN_MERGED = regex.compile(r"[ \u00a0\u202f\u3000]*\Z")
_GLUE = frozenset(";,:/|&=+-")
"""One of them, without a space, between two addresses or alike: `me@x.org;you@y.org`."""
_GLUED_KINDS: frozenset[Kind] = frozenset({"code", "url", "email", "format", "path", "handle", "identifier"})

# Marks of emphasis that are letters to a regular expression: _so_, __so__.
_UNDERLINED = regex.compile(
    r"""(?<![^\s("'“‘«\[*~>|—–{,;])(?P<marks>_{1,3}+)(?P<inner>(?=[^\s_])(?:(?!\s[*~("]{0,3}_)[^\n]){1,200}?)(?<![\s_])(?P=marks)
    (?=[\s)"'”’»\]*~<|—–}]|\Z|[.,:;!?…]{1,4}+(?:[\s)"'”’»\]*~<]|\Z))""",
    regex.VERBOSE,
)
_NAMES_IN_UNDERSCORES = frozenset(
    "all asm attribute author dirname extension filename file func inline line main path proto restrict typeof version "
    "volatile".split()
) | {
    name.strip("_")
    for kind in (object, type, int, float, list, dict, BaseException, type(print), type(lambda: 0), type(re))
    for name in dir(kind)
    if name.startswith("__")
}
"""What a programmer writes so: `__init__`, `__name__`."""
_OPENING = {")": "(", "]": "[", "}": "{"}
_URL_TAIL = ".,;:!?…'\"*_)]}\\"

_PLURAL = regex.compile(r"(?<=[}\])\w])s(?!\w)")
"""`{count}s`, `{item}s`."""
_GLUED_LETTER = regex.compile(r"[;:|][A-Za-z](?![\w'’-])")
"""`%s;y`: no word, so close to what is kept."""
_KIND_OF: dict[str, Kind] = {kind: kind for kind in KINDS} | {
    "email2": "email",
    "at": "email",
    "scp": "path",
    "share": "path",
    "relative": "path",
    "backslashed": "path",
    "tex": "code",
    "escaped": "format",
    "clock": "identifier",
    "counted": "identifier",
    "initials": "identifier",
    "command": "code",
    "command2": "code",
    "glued": "url",
    "network": "identifier",
    "formula": "code",
    "run": "symbol",
    "lone": "symbol",
    "dots": "symbol",
    "said": "symbol",
    "smiley": "emoji",
}
"""The groups of the pattern; some are not named as their kind."""

_DIGITS = regex.compile(r"\d+")
_LETTER_ESCAPES = regex.compile(_LETTER_ESCAPE)
_SHOWN_LETTERS = regex.compile(rf"{SHOWN_APOSTROPHE}|{SHOWN_LETTER}")


@dataclass(frozen=True, slots=True)
class KeptSpan:
    """A stretch of a text that stays as it is.

    Attributes:
        start: Its first character, in code points of the text it was found in.
        end: One past its last.
        text: The characters.
        kind: What it is.
    """

    start: int
    end: int
    text: str
    kind: Kind

    @property
    def is_soft(self) -> bool:
        """Whether the model should see it first."""
        return self.kind in SOFT_KINDS

    def stays(self, source: str, target: str) -> bool:
        """Whether a translation has the span as often as its source; a term may come more often, or with a capital."""
        if self.kind == "term":
            term = self.text.casefold()
            return target.casefold().count(term) >= source.casefold().count(term)
        if "\\" in source and "\\" not in self.text:  # the digits of an escaped letter are none
            source, target = (_SHOWN_LETTERS.sub(" ", text) for text in (source, target))
        return target.count(self.text) == source.count(self.text)


def kept_spans(text: str, is_known: Callable[[str], bool] | None = None) -> tuple[KeptSpan, ...]:
    """Finds what must be kept.

    Args:
        text: Any text; takes time linear in its length.
        is_known: Whether the model can read a character. Words with one that it cannot read are kept whole, and so are
            signs. Without it every character counts as known.

    Returns:
        The spans in order, without overlap.
    """
    spans: list[KeptSpan] = []
    for start, end, kind in _structured(text):
        if spans and spans[-1].end > start:
            continue
        spans.append(KeptSpan(start, end, text[start:end], kind))
    spans = sorted([*spans, *_unreadable(text, spans, is_known)], key=lambda span: span.start)
    return tuple(_merged(text, spans))


def structured_spans(text: str) -> list[tuple[int, int]]:
    """`[start, end)` of what no sentence may end in, whatever the model knows."""
    return [(start, end) for start, end, _ in _structured(text)]


def mark_places(text: str) -> set[int]:
    """Places of the signs that are no part of an address, a name, a number or code: they may be marks of emphasis."""
    signs = (span for *span, kind in _structured(text) if kind == "symbol")
    return {place for start, end in signs if not any(map(str.isalnum, text[start:end])) for place in range(start, end)}


def number_runs(text: str) -> list[str]:
    r"""Every run of digits: `10:30` has two; `\u00e9` has none, it is a letter."""
    found: list[str] = _DIGITS.findall(_LETTER_ESCAPES.sub(" ", text) if "\\" in text else text)
    return found


def _structured(text: str) -> Iterator[tuple[int, int, Kind]]:
    if is_code(text):
        yield 0, len(text), "code"
        return
    if _INITIALS_ALONE.fullmatch(text):
        yield 0, len(text), "identifier"
        return
    if _LETTERS_ALONE.fullmatch(text):
        yield from ((place, place + 1, "identifier") for place, char in enumerate(text) if char.isalpha())
        return
    if _PLAIN.fullmatch(text) or not (_SIGN.search(text) or _HINT.search(text)):
        return
    text = _with_plain_marks(text)
    comment = code_before_comment(text)
    if comment is not None:
        yield 0, comment, "symbol"
    end_of_comment = len(text) - 2 * (comment is not None and text.endswith("*/"))
    for match in _STRUCTURED.finditer(text, comment or 0, end_of_comment):
        group = match.lastgroup or ""
        if group in ("plain", "shown"):
            continue
        kind = _KIND_OF[group]
        start, end = match.span()
        if kind in ("url", "path"):
            end = _without_tail(text, start, end)
        elif kind == "format" and (more := _PLURAL.match(text, end) or _GLUED_LETTER.match(text, end)):
            end = more.end()
        elif kind == "handle":
            end = start + len(match[0].rstrip(".-"))
        if end - start > 0:
            yield start, end, kind
    if end_of_comment < len(text):
        yield end_of_comment, len(text), "symbol"


def _with_plain_marks(text: str) -> str:
    """The text with stars in the place of the underscores that emphasise words: they are no part of a name."""
    if "_" not in text:
        return text
    chars: list[str] | None = None
    for match in _UNDERLINED.finditer(text):
        inner, marks = match["inner"], match["marks"]
        if not any(map(str.isalpha, inner)):
            continue
        is_word = regex.fullmatch(r"\w+", inner) is not None
        if is_word and (
            "_" in inner or (len(marks) > 1 and (inner in _NAMES_IN_UNDERSCORES or not inner[1:].islower()))
        ):
            continue
        chars = chars or list(text)
        for place in (*range(*match.span("marks")), *range(match.end("inner"), match.end())):
            chars[place] = "*"
    return text if chars is None else "".join(chars)


def _without_tail(text: str, start: int, end: int) -> int:
    """The end of an address without the punctuation of the sentence around it."""
    while end > start and text[end - 1] in _URL_TAIL:
        opening = _OPENING.get(text[end - 1])
        if opening is not None and text.count(opening, start, end) >= text.count(text[end - 1], start, end):
            break
        if text[end - 1] == "\\" and "://" not in text[start:end]:  # C:\ ends in it
            break
        end -= 1
    return end


def _unreadable(text: str, spans: list[KeptSpan], is_known: Callable[[str], bool] | None) -> Iterator[KeptSpan]:
    """Between the spans, words that are too long for words, and those with a character that the model does not know."""
    if is_known is not None and _is_readable(text, is_known):
        return
    # What shouts is shown in small letters, and a model may know no Ù but an ù.
    shown = str.lower if in_capitals(text, spans) else str
    free_from = 0
    for start, end in [*((span.start, span.end) for span in spans), (len(text), len(text))]:
        for word in _WORD_RUN.finditer(text, free_from, start):
            is_readable = is_known is None or all(map(is_known, unicodedata.normalize("NFC", shown(word[0]))))
            if not is_readable or _LONG_WORD.fullmatch(word[0]):
                yield KeptSpan(word.start(), word.end(), word[0], "unknown")
        free_from = max(free_from, end)


def _is_readable(text: str, is_known: Callable[[str], bool]) -> bool:
    """Whether no word can be unreadable: nearly always, and seen without looking at each."""
    has_short_words = len(text) <= _LONGEST_WORD or max(map(len, text.split()), default=0) <= _LONGEST_WORD
    return has_short_words and unicodedata.is_normalized("NFC", text) and all(map(is_known, {*text} - _BLANKS))


def _merged(text: str, spans: list[KeptSpan]) -> Iterator[KeptSpan]:
    """Hard spans with nothing but spaces between them are one: it is easier to keep."""
    last: KeptSpan | None = None
    for span in spans:
        together = last is not None and not (last.is_soft or span.is_soft)
        if last is not None and together and _belong_together(text, last, span):
            last = KeptSpan(last.start, span.end, text[last.start : span.end], last.kind)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _belong_together(text: str, last: KeptSpan, span: KeptSpan) -> bool:
    between = text[last.end : span.start]
    is_glued = between in _GLUE and last.kind in _GLUED_KINDS and span.kind in _GLUED_KINDS
    return is_glued or _BETWEEN_MERGED.match(between) is not None
