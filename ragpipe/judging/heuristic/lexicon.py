"""Lists of English words: stop words, negations, number words, months and units."""

from __future__ import annotations


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# The last two lines are words of answers about passages ("the passage states ..."), which no passage needs to contain.
STOP_WORDS = _set(
    """a about above after again against all also although am an and any are as at be because been before being below
    between both but by can could did do does doing down during each either else etc even ever every few for from
    further get had has have having he her here hers him his how however i if in into is it its itself just let like
    many may me might more most much must my of off often on once only or other our out over own per rather same
    she should since so some such than that the their them then there therefore these they this those through thus to
    too under until up upon us use used using very via was we well were what when where whether which while who whom
    whose why will with within would yes you your st nd rd th s t re ve ll d m
    according additionally answer based given following include includes including mention mentioned mentions passage
    passages provided source sources state stated states example overall specifically"""
)
NEGATIONS = _set(
    """not no never none nobody nothing neither nor cannot without unable isn't aren't wasn't weren't don't doesn't
    didn't can't couldn't won't wouldn't shouldn't hasn't haven't hadn't mustn't"""
)
# Read in texts that are not English: some are English words of another meaning.
OTHER_NEGATIONS = _set(
    """nicht kein keine keinen keinem keiner keines nie niemals ohne weder nichts pas jamais aucun aucune sans ningún ninguna ninguno
    sin nunca jamás tampoco non nessun nessuna nessuno senza mai né não nenhum nenhuma sem niet geen nooit zonder żaden żadna bez
    nigdy nie değil yok hiçbir не нет без никогда нельзя لا لم لن ليس ليست غير بدون नहीं न मत बिना"""
)
NEGATED_SIGNS = "不没沒無无未非"
EXCEPT = _set(
    "except excluding excluded außer ausgenommen ausschließlich sauf hormis excepto salvo exceto eccetto tranne behalve uitgezonderd"
)
INCLUDING = _set(
    "including included einschließlich inklusive inbegriffen compris incluant incluido incluidos inclusive incluso inclusi inclusief"
)

MONTHS = (
    "",
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
MONTH_NUMBER = {name[:3]: place for place, name in enumerate(MONTHS) if name} | {"sept": 9}
MONTH_NUMBER |= {name: place for place, name in enumerate(MONTHS) if name}


def _numbered(words: str, first: int = 0, step: int = 1) -> dict[str, int]:
    return {word: first + step * place for place, word in enumerate(words.split())}


SMALL = _numbered(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
TENS = _numbered("twenty thirty forty fifty sixty seventy eighty ninety", 20, 10)
SCALE = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SHORT_SCALE = {"k": 10**3, "m": 10**6, "mn": 10**6, "bn": 10**9, "b": 10**9}

_UNITS = {
    "minute": "minute minutes min mins",
    "hour": "hour hours hr hrs h",
    "second": "second seconds sec secs",
    "day": "day days",
    "week": "week weeks wk wks",
    "month": "month months",
    "year": "year years yr yrs",
    "%": "% percent pct prozent",
    "percentage points": "prozentpunkte prozentpunkt prozentpunkten pp procentpunten",
    "$": "$ dollar dollars usd",
    "€": "€ euro euros eur",
    "£": "£ gbp",
    "kg": "kg kilogram kilograms kilo kilos",
    "g": "g gram grams",
    "mg": "mg milligram milligrams",
    "lb": "lb lbs pound pounds",
    "oz": "oz ounce ounces",
    "mile": "mile miles mi",
    "km": "km kilometer kilometers kilometre kilometres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "foot": "foot feet ft",
    "inch": "inch inches",
    "°": "° degree degrees",
    "cup": "cup cups",
    "ml": "ml milliliter milliliters",
    "liter": "l liter liters litre litres",
    "teaspoon": "tsp teaspoon teaspoons",
    "tablespoon": "tbsp tablespoon tablespoons",
}
UNITS = {form: unit for unit, forms in _UNITS.items() for form in forms.split()}
