r"""Tells lines of programs from prose: what a computer reads is not translated.

    is_code("for i in range(10): print(i)")         # True
    is_code("for life in the country: a guide")     # False

A line counts as code if it has the form of a statement, and its expressions are expressions: names, numbers, strings
and calls with an operator between any two. Prose has words beside each other, so it has no such form, whatever it
begins with. What could be either (`break`, `profit = income - costs`) is prose.
"""

from __future__ import annotations

import sys

import regex

_MAX_LENGTH = 400
"""Longer lines are looked at by no pattern here."""

_NAME = r"[A-Za-z_]\w{0,60}+"
_DOTTED = rf"{_NAME}(?:(?:\.|::|->){_NAME}){{0,8}}+"
_ARGUMENTS = r"\((?:[^()\n]|\((?:[^()\n]|\([^()\n]{0,80}\)){0,80}+\)){0,200}+\)"
_STRING = r"""[rbfu]?(?:"[^"\n]{0,200}"|'[^'\n]{0,200}'|`[^`\n]{0,200}`)"""
_BRACKETS = r"(?:\[[^\[\]\n]{0,200}\]|\{[^{}\n]{0,200}\})"
_ATOM = (
    rf"(?:(?:await|new|not|typeof)[ ]|[-!*&$~]){{0,2}}"
    rf"(?:{_STRING}|\d[\w.]*+|{_DOTTED}|{_ARGUMENTS}|{_BRACKETS})(?:{_ARGUMENTS}|{_BRACKETS}|\.{_NAME}){{0,6}}+"
)
_OPERATOR = (
    r"(?:[ ]?(?:\*\*|//|&&|\|\||<<|>>|[=-]>|[-+*/%&|^<>=!]=?=?|[,?:])[ ]?"
    r"|[ ](?:and|or|in|is|is[ ]not|not[ ]in|if|else|as)[ ])"
)
_EXPRESSION = regex.compile(rf"{_ATOM}(?:{_OPERATOR}{_ATOM}){{0,30}}+")
_CODE_SIGN = regex.compile(
    r"""[\[\]{}=<>*+%&|^_"`$'] | \w\( | (?<!\w)\d | \w\.\w | (?<!\w)[A-Za-z]\w?(?!\w)
    | \b(?:True|False|None|null|nil|true|false|self|this|undefined)\b""",
    regex.VERBOSE,
)
_MODULES = sys.stdlib_module_names | frozenset(
    "django fastapi flask keras matplotlib numpy pandas pydantic pytest requests scipy sklearn tensorflow torch".split()
)
_TYPES = "const|let|var|val|auto|int|float|double|bool|boolean|char|long|short|byte|string|String"
_MODIFIERS = (
    r"(?:(?:export|default|public|private|protected|static|final|async|inline|virtual|override|pub|const|constexpr|extern"
    r"|unsigned|signed|volatile|mutable)[ ])*"
)
_NOT_A_TABLE = r"(?!(?:THE|A|AN|ALL|YOUR|OUR|MY|THIS|THAT|THESE|THOSE|HERE|THERE|EACH|BELOW|ABOVE)\b)"
_TABLE = rf"{_NOT_A_TABLE}[\w.\"`\[\]]{{1,80}}"

# Commands that are no words of a sentence, with what they are told to do.
COMMAND = (
    r"(?:git[ ](?:add|bisect|branch|checkout|clone|commit|config|diff|fetch|init|log|merge|pull|push|rebase|remote"
    r"|reset|restore|show|stash|status|switch|tag)|(?:npm|yarn|pnpm)[ ](?:ci|init|install|publish|run|start|test)"
    r"|(?:pip3?|conda|apt|apt-get|brew|dnf|cargo|gem)[ ](?:install|uninstall|remove|update|upgrade|build|test)"
    r"|docker[ ](?:build|compose|exec|images|ps|pull|push|run|stop)|kubectl[ ](?:apply|delete|describe|exec|get|logs)"
    r"|sudo[ ][a-z][\w-]*)(?![\w-])"
)
OPTIONS = r"""(?:[ ]--?[A-Za-z][\w-]*+(?:=[^\s,;"']++)?|[ ]"[^"\n]{0,160}"|[ ]'[^'\n]{0,160}')"""
# With nothing but names and options behind it; prose has other words there.
_COMMAND_LINE = regex.compile(
    rf"{COMMAND}(?P<rest>(?:{OPTIONS}|[ ](?:[\w@./:=~^*+$-]++|&&|\|\|?|>>?|<)){{1,12}}+)(?<![.:])"
)
_NOT_TOLD = frozenset(
    "a an and are as at by can command commands does error errors fail failed fails file files for from hangs has hook "
    "hooks if in is it message messages not of on or our that the then to was were when will with works you".split()
)

# What a line without brackets, `=`, `;` and `+` begins with; most prose needs no closer look.
_BEGINNING = regex.compile(
    r"(?:if|for|while|with|elif|else|try|finally|do|class|from|import|except|raise|throw|return|yield|assert|del|lambda"
    r"|select|SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|TRUNCATE|cat|cd|chmod|chown|cp|curl|echo|export|find|gcc|go"
    r"|grep|head|java|kill|ls|make|mkdir|mv|node|npx|ps|python3?|rm|scp|sed|sh|source|ssh|tail|tar|touch|wget"
    r"|git|npm|yarn|pnpm|pip3?|conda|apt|apt-get|brew|dnf|cargo|gem|docker|kubectl|sudo)\b|[#$]|.*--\Z"
)
_COMMENT = regex.compile(r"(?<=\S)\s++(?://++|\#++|--|/\*++)(?=\s+\p{L})")

# Whatever else is in them.
_WHOLE = regex.compile(
    rf"""(?:
      (?:async[ ])?def[ ]{_NAME}[ ]?{_ARGUMENTS}(?:[ ]->[ ][^\n:]{{1,80}})?:.*
    | class[ ]{_NAME}(?:{_ARGUMENTS})?:(?:[ ]pass)?
    | from[ ][\w.]{{1,80}}[ ]import[ ]
      (?:\*|\(?{_NAME}(?:[ ]as[ ]{_NAME})?(?:,[ ]?{_NAME}(?:[ ]as[ ]{_NAME})?){{0,20}}\)?)
    | import[ ](?:[^\n"']{{1,120}}[ ]from[ ])?["'][^"'\n]{{1,120}}["'];?
    | import[ ]{_DOTTED}[ ]as[ ](?:\w{{1,5}}|\w*_\w*)
    | import[ ](?:static[ ])?[\w]+(?:\.[\w*]+)+;?
    | (?:package|using|use|namespace|mod)[ ](?:namespace[ ])?[\w.:\\]{{1,80}};
    | \#include[ ]?[<"][\w./]{{1,80}}[>"] | \#(?:define|ifdef|ifndef|pragma|undef)[ ].* | \#(?:endif|else) | \#!/.*
    | (?:else|try|finally|do):? | except:
    | (?:except|catch|raise|throw)[ ](?:new[ ])?\(?\w*(?:Error|Exception|Interrupt|Exit)\b.*
    | \}}?[ ]?(?:else|do|try|finally|(?:else[ ]if|catch)[ ]?{_ARGUMENTS})[ ]?\{{.*
    | {_MODIFIERS}(?:function\*?|fn|func|void)[ ]{_NAME}{_ARGUMENTS}.* | function[ ]?{_ARGUMENTS}[ ]?\{{.*
    | public[ ](?:static[ ])?(?:class|void|interface)[ ].*\{{[ ]?\}}?
    | <\?(?:php|=|xml)[ ].*\?>
    | {_MODIFIERS}(?:{_TYPES})(?:\[\])?[ ]{_NAME}(?:,[ ]?{_NAME})*;
    | {_MODIFIERS}{_DOTTED}<[\w:<>,?&*\[\] ]{{1,80}}>[&*]*+(?:[ ][&*]*+{_NAME}(?:[ ]?[=({{][^\n]*)?)?;
    | (?:break|continue|pass|return); | {_DOTTED}(?:\+\+|--);?
    | SELECT[ ][^\n]{{1,200}}[ ]FROM[ ]{_TABLE}(?:[ ;,)(].*)?
    | INSERT[ ]INTO[ ]{_TABLE}[ ]?(?:\(|VALUES|SELECT).* | UPDATE[ ]{_TABLE}[ ]SET[ ].*=.*
    | DELETE[ ]FROM[ ]{_TABLE}(?:[ ]WHERE[ ].*)?;?
    | (?:CREATE|ALTER|DROP|TRUNCATE)[ ](?:UNIQUE[ ]|TEMP[ ])?(?:TABLE|INDEX|VIEW|DATABASE|SCHEMA|USER)[ ]
      (?:IF[ ](?:NOT[ ])?EXISTS[ ])?{_TABLE}(?:[ ;(].*)?
    | select[ ][\w*.,() ]{{1,120}}[ ]from[ ][\w.]{{1,60}}
      (?:[ ]where[ ][\w.]{{1,60}}[ ]?(?:[=<>]|!=|like|in|is)[ ]?\S.*|[ ]limit[ ]\d+)?[ ]?;
    | select[ ](?:\*|count\([\w*]+\))[ ]from[ ].* | select[ ].{{1,120}}[ ]from[ ]\S+[ ]where[ ]\S+[ ]?[=<>].*
    | \$[ ][a-z][\w.-]*+(?:[ ][^\n]{{1,200}})?
    | (?:cat|cd|chmod|chown|cp|curl|echo|export|find|gcc|go|grep|head|java|kill|ls|make|mkdir|mv|node|npx|ps|python3?|rm
        |scp|sed|sh|source|ssh|tail|tar|touch|wget)
      (?=[ ](?:.*[ ])?(?:--?[A-Za-z]|[~.]?/\w|\$\w|["'*|]|\d>|>>?[ ]|\w+=
        |[\w-]+\.(?:py|sh|js|txt|log|json|ya?ml|c|java|tar|gz)\b))[ ].*
    )""",
    regex.VERBOSE,
)
# Where the expressions have to be such.
_WITH_EXPRESSIONS = regex.compile(
    rf"""(?:
      for[ ](?P<target>{_NAME}(?:,[ ]?{_NAME}){{0,3}})[ ]in[ ](?P<e>[^\n]{{1,160}}?):(?P<body>[ ].+)?
    | (?:if|elif|while|with)[ ](?P<e>[^\n]{{1,160}}?):(?P<body>[ ].+)?
    | (?:else|try|finally):(?P<body>[ ].+)
    | (?:return|yield|assert|del|await)[ ](?P<e>[^\n]{{1,160}}?);?
    | lambda(?:[ ]{_NAME}(?:,[ ]?{_NAME}){{0,5}})?:[ ]?(?P<e>[^\n]{{1,160}})
    | {_MODIFIERS}(?:{_TYPES})(?:\[\])?[ ]{_NAME}(?::[ ]?[\w<>\[\]]{{1,40}})?[ ]?=[ ]?(?P<e>[^\n=][^\n]{{0,200}}?);?
    | (?P<target>{_DOTTED}(?:{_BRACKETS}){{0,2}}(?:,[ ]?{_DOTTED}){{0,3}})
      [ ]?(?:[-+*/%&|^]|\*\*|//|:|\|\||<<|>>)?=[ ]?(?P<e>[^\n=>~][^\n]{{0,200}}?);?
    )""",
    regex.VERBOSE,
)
_CALL = regex.compile(
    rf"(?:await[ ])?(?P<name>{_DOTTED})(?P<arguments>{_ARGUMENTS})(?:{_ARGUMENTS}|{_BRACKETS}|\.{_NAME}){{0,6}}+[;:]?"
)
_LIKE_A_NAME = regex.compile(r"[._\d]|\p{Ll}\p{Lu}|->|::|\A[A-Za-z]\Z")
_FUNCTIONS = frozenset(
    "abs arccos arcsin arctan atan cos cosh cot csc det dim echo exit exp float int len lim list ln log map max min "
    "open print printf range round sec set sin sinh sqrt str sum tan tanh type".split()
)
_ENDINGS = frozenset("a al d e ed en er es ies ing ly men n r ren s t".split())
"""What stands in brackets behind a word that has two forms, as in *file(s)*, *he(r)*."""

# A line of a program: it ends as one, and calls or assigns.
_STATEMENT = regex.compile(
    r"""(?=.*(?:\w\((?!e?s\))|[ ][-+*/|&]?=[ ]|[=!<>]=|[=-]>|\+\+|--|&&|\|\||\)[ ]?\{\Z))
        .*(?:;|;[ ]?\}|\)[ ]?\{)\Z
    | (?:if|while|for|switch)[ ]?\([^\n]{1,200}\)[ ]?(?:\{[^\n]{0,200}\}|[^\n]{1,200};|\{)?\Z
    | [{\[]\s?["'{][^\n]{1,400}[}\]][,;]?\Z(?<=["'][ ]?:[ ]?[^\n]{1,400})  # an object of JSON or alike""",
    regex.VERBOSE,
)
_PROSE = regex.compile(r"(?:\b\p{Ll}{2,}+[ ]){3}\p{Ll}{2,}")
_QUOTED = regex.compile(r"""\"[^"]*+\"|'[^']*+'""")


def is_code(line: str) -> bool:
    """Whether a line, without white space at its ends, is one of a program, a shell or a query."""
    if len(line) > _MAX_LENGTH or "\n" in line or not (_BEGINNING.match(line) or any(map(line.count, "(={;+"))):
        return False
    if _WHOLE.fullmatch(line):
        return True
    command = _COMMAND_LINE.fullmatch(line)
    if command and _NOT_TOLD.isdisjoint(_QUOTED.sub("", command["rest"]).split()):
        return True
    if _STATEMENT.match(line) and not _PROSE.search(_QUOTED.sub("", line)):
        return True
    if line.startswith("import ") and set(line[7:].rstrip(";").split(", ")) <= _MODULES:
        return True
    match = _WITH_EXPRESSIONS.fullmatch(line)
    if match is not None and _has_expressions(match):
        return True
    match = _CALL.fullmatch(line)
    return match is not None and _calls(match["name"], match["arguments"][1:-1])


def code_before_comment(line: str) -> int | None:
    """Where the words of a comment begin, with the sign before them in front, if the rest of a line is code."""
    if "//" in line or "#" in line or "--" in line or "/*" in line:
        for match in _COMMENT.finditer(line, 0, _MAX_LENGTH):
            if is_code(line[: match.start()]):
                return match.end()
    return None


def _has_expressions(match: regex.Match[str]) -> bool:
    target, expression, body = (match.groupdict().get(name) or "" for name in ("target", "e", "body"))
    body = body.strip()
    if (
        body
        and body not in ("pass", "break", "continue", "return", "...")
        and not (is_code(body) or _is_expression(body))
    ):
        return False
    if not expression:
        return True
    if target and target[0].isupper() and not _LIKE_A_NAME.search(target):
        return False  # a label: Total = 5
    # Whatever is assigned to what can only be a variable.
    is_name = bool(target) and all(_LIKE_A_NAME.search(part) for part in target.split(", "))
    is_plain = is_name and " and " not in expression and " or " not in expression
    return _is_expression(expression) or (is_plain and _EXPRESSION.fullmatch(expression) is not None)


def _is_expression(text: str) -> bool:
    return _EXPRESSION.fullmatch(text) is not None and _CODE_SIGN.search(text) is not None


def _calls(name: str, arguments: str) -> bool:
    if name[0].isupper() and not _LIKE_A_NAME.search(name):
        return False  # Price(net)
    if not arguments:
        return True
    if regex.fullmatch(r"\w+", arguments) is None:
        return _is_expression(arguments)
    return name in _FUNCTIONS or _LIKE_A_NAME.search(name) is not None or arguments.casefold() not in _ENDINGS
