"""Answers in 14 languages: no false verdict of the rules, and what is skipped is said."""

from __future__ import annotations

import pytest

from ragpipe.core.errors import Skipped
from ragpipe.core.text_match import MatchableText, occurs
from ragpipe.judging.heuristic.claim_features import index_sources
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.heuristic.verdict_rules import decide
from ragpipe.metrics.shared.verbatim import find_verbatim
from ragpipe.patterns.dont_know import dont_know_phrase, load_phrases
from ragpipe.patterns.languages import language_of
from ragpipe.patterns.refusals import load_refusals, read_refusal
from ragpipe.patterns.sentences import list_items, sentences

# code: refusals, a right answer that is word for word in the source, the same with another number
LANGUAGES = {
    "de": (["Das weiß ich leider nicht.", "k. A.", "Leider enthalten die Dokumente keine Informationen dazu.",
            "Diese Frage kann ich anhand der Quellen nicht beantworten. Bitte wenden Sie sich an den Kundendienst.",
            "Es liegen keine Angaben zur Gebühr vor.", "Dazu finde ich nichts in den Unterlagen."],
           "Die Gebühr für den Ausweis beträgt 45 Euro.", "Die Gebühr für den Ausweis beträgt 54 Euro."),
    "fr": (["Je ne sais pas.", "Je suis désolé, les documents ne contiennent pas cette information.", "Aucune information disponible.",
            "Il m'est impossible de répondre à cette question."],
           "Les frais pour la carte sont de 45 euros.", "Les frais pour la carte sont de 54 euros."),
    "es": (["No lo sé.", "Lo siento, no puedo responder con la información proporcionada.", "No hay datos al respecto.", "No consta."],
           "La tarifa de la tarjeta es de 45 euros.", "La tarifa de la tarjeta es de 54 euros."),
    "it": (["Non lo so.", "Mi dispiace, non posso rispondere.", "I documenti non contengono questa informazione.", "Non specificato."],
           "La tariffa per la tessera è di 45 euro.", "La tariffa per la tessera è di 54 euro."),
    "pt": (["Não sei.", "Desculpe, não posso responder.", "Os documentos não contêm essa informação.", "Sem dados disponíveis."],
           "A taxa do cartão é de 45 euros.", "A taxa do cartão é de 54 euros."),
    "nl": (["Dat weet ik niet.", "Helaas kan ik dat niet beantwoorden.", "De documenten bevatten deze informatie niet.", "Niet vermeld."],
           "De kosten van de pas zijn 45 euro per jaar.", "De kosten van de pas zijn 54 euro per jaar."),
    "pl": (["Nie wiem.", "Przepraszam, nie mogę odpowiedzieć.", "Dokumenty nie zawierają tej informacji.", "Brak danych."],
           "Opłata za kartę wynosi 45 euro i jest roczna.", "Opłata za kartę wynosi 54 euro i jest roczna."),
    "tr": (["Bilmiyorum.", "Üzgünüm, bu soruyu yanıtlayamam.", "Belgeler bu bilgiyi içermiyor.", "Bilgi yok."],
           "Kart için ücret yılda 45 avro olarak belirlenir.", "Kart için ücret yılda 54 avro olarak belirlenir."),
    "ru": (["Я не знаю.", "К сожалению, в документах нет этой информации.", "Нет данных.", "Не могу ответить на этот вопрос."],
           "Плата за карту составляет 45 евро в год.", "Плата за карту составляет 54 евро в год."),
    "ar": (["لا أعرف.", "عذرًا، لا تحتوي المستندات على هذه المعلومات.", "لا يمكنني الإجابة عن هذا السؤال.", "غير مذكور."],
           "رسوم البطاقة هي 45 يورو في السنة.", "رسوم البطاقة هي 54 يورو في السنة."),
    "hi": (["मुझे नहीं पता।", "क्षमा करें, दस्तावेज़ों में यह जानकारी नहीं है।", "जानकारी उपलब्ध नहीं है।"],
           "कार्ड का शुल्क 45 यूरो प्रति वर्ष है।", "कार्ड का शुल्क 54 यूरो प्रति वर्ष है।"),
    "zh": (["我不知道。", "抱歉，提供的文档中没有相关信息，无法回答该问题。", "未提及。", "資料中沒有提到費用。"],
           "办理借书卡的费用为每年45欧元。", "办理借书卡的费用为每年54欧元。"),
    "ja": (["わかりません。", "申し訳ありませんが、提供された文書にはその情報が含まれていません。", "記載されていません。", "お答えできません。"],
           "図書カードの料金は年間45ユーロです。", "図書カードの料金は年間54ユーロです。"),
    "ko": (["모르겠습니다.", "죄송합니다. 제공된 문서에 해당 정보가 없습니다.", "답변할 수 없습니다.", "정보 없음"],
           "도서 카드의 요금은 매년 45유로입니다.", "도서 카드의 요금은 매년 54유로입니다."),
}  # fmt: skip
PATTERNS, PHRASES = load_refusals("refusals.v3"), load_phrases("dont_know.v3")
SETTINGS = HeuristicSettings()


def verdict(claim, *sources):
    try:
        finding = decide([claim], index_sources(sources), SETTINGS)[0]
    except Skipped as skipped:
        return str(skipped)
    return "supported" if finding.supported else "contradicted" if finding.contradicted else "not supported"


@pytest.mark.parametrize(("code", "refusal"), [(code, one) for code, (refusals, _, _) in LANGUAGES.items() for one in refusals])
def test_a_refusal_is_one_in_every_language(code, refusal):
    assert read_refusal(refusal, PATTERNS).refused
    assert dont_know_phrase(refusal, PHRASES)


@pytest.mark.parametrize("code", LANGUAGES)
def test_right_and_wrong_answers(code):
    _, right, wrong = LANGUAGES[code]
    assert not read_refusal(right, PATTERNS).refused
    assert dont_know_phrase(right, PHRASES) is None
    assert verdict(right, right) == "supported"
    assert verdict(wrong, right) == "contradicted"


@pytest.mark.parametrize("answer", ["Dokumenten innehåller ingen information om avgiften.", "En tiedä tätä.", "Nu știu, documentele nu conțin asta.",
                                    "У документах немає цієї інформації.", "اسناد این اطلاعات را ندارند.", "Δεν γνωρίζω την απάντηση."])  # fmt: skip
def test_a_language_without_phrases_gets_no_verdict(answer):
    assert not read_refusal(answer, PATTERNS).covered


@pytest.mark.parametrize(
    "answer", ["Paris", "42", "No, the shop is closed.", "Beyoncé", "Simmer for 15 minutes.", "Passage 1", "It rained."]
)
def test_english_and_names_are_read_as_before(answer):
    assert language_of(answer) in ("en", None)
    assert read_refusal(answer, PATTERNS).covered


SAME = [
    ("The flat costs 1.250.000 euros.", "The flat costs 1,25 Millionen euros."), ("It has 1 250 000 people.", "It has 1250000 people."),
    ("The fee is 1'200 francs.", "The fee is 1200 francs."), ("It costs 5 lakh rupees.", "It costs 500,000 rupees."),
    ("It costs 2 crore rupees.", "It costs 20,000,000 rupees."), ("The law passed on 15.03.2024.", "The law passed on 15. März 2024."),
    ("The law passed on 15 mars 2024.", "The law passed on 2024-03-15."), ("Add ½ cup of sugar.", "Add 0.5 cup of sugar."),
    ("It opens at 2:30 pm daily.", "It opens at 14:30 daily."), ("It opens at 14h30 daily.", "It opens at 2:30 p.m. daily."),
    ("It has 10^6 cells inside.", "It has 1,000,000 cells inside."), ("It has 4.2e6 cells inside.", "It has 4,200,000 cells inside."),
    ("It seats two hundred and fifty people.", "It seats 250 people."), ("这座大厅可容纳500人。", "这座大厅可容纳五百人。"),
    ("这座城市有30万人口。", "这座城市有三十万人口。"), ("Call +4930123456 now.", "Call +49 30 123456 now."),
    ("The fee is １２ euros.", "The fee is 12 euros."), ("It lasts 5 Jahre lang.", "It lasts fünf Jahre lang."),
]  # fmt: skip
OTHER = [
    ("The shop opens at 2:30 am.", "The shop opens at 2:30 pm."), ("Use version 3.1 of the library.", "Use version 3.10 of the library."),
    ("The postcode is 1067 for the office.", "The postcode is 01067 for the office."), ("The rate rose by 5%.", "The rate rose by 5 percentage points."),
    ("All staff including interns receive it.", "All staff except interns receive it."), ("Die Gebühr wird erstattet.", "Die Gebühr wird nicht erstattet."),
    ("La taxe est remboursée par la mairie.", "La taxe n'est pas remboursée par la mairie."), ("押金能退还给客户。", "押金不能退还给客户。"),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "source"), [*SAME, *((b, a) for a, b in SAME)])
def test_equal_numbers_in_other_notations_are_not_contradicted(claim, source):
    assert verdict(claim, source) != "contradicted"


@pytest.mark.parametrize(("claim", "source"), OTHER)
def test_another_value_close_in_writing_is_not_supported(claim, source):
    assert verdict(claim, source) == "contradicted"


QUOTE = "opens at nine on Monday"


@pytest.mark.parametrize(
    "marks", ["„{}“", "„{}”", "”{}”", "»{}«", "«{}»", "« {} »", "‹{}›", "「{}」", "『{}』", "'{}'", "‚{}‘", "“{}”", '"{}"', "> {}"]
)
def test_quotation_marks_of_all_kinds(marks):
    spans = find_verbatim(marks.format(QUOTE), f"The office {QUOTE} and closes at six.", 6).spans
    assert [span.quoted for span in spans] == [True]


@pytest.mark.parametrize("text", ["+ a\n+ b\n+ c", "1、a\n2、b\n3、c", "**1.** a\n**2.** b\n**3.** c", "a) a\nb) b\nc) c", "① a\n② b\n③ c", "1.a\n2.b\n3.c",
                                  "1) a 2) b 3) c", "一、a\n二、b\n三、c", "（一）a\n（二）b\n（三）c", "<ul><li>a</li><li>b</li><li>c</li></ul>",
                                  "| n |\n|---|\n| a |\n| b |\n| c |", "①a②b③c", "- [ ] a\n- [ ] b\n- [ ] c"])  # fmt: skip
def test_list_marks(text):
    assert list_items(text) == ["a", "b", "c"]


@pytest.mark.parametrize(("text", "count"), [("Der Vertrag gilt ab dem 29. Juli 2026. Er kostet z. B. fünf Euro.", 2), ("Das gilt für Kinder bzw. Jugendliche.", 1),
                                             ("बिल्ली सोती है। कुत्ता भौंकता है।", 2), ("猫睡觉。狗叫！鸟飞？", 3), ("هل تعرف؟ نعم. هذا صحيح.", 3),
                                             ("Im 19. Jahrhundert war es so. Heute nicht.", 2)])  # fmt: skip
def test_sentences(text, count):
    assert len(sentences(text)) == count


@pytest.mark.parametrize(("quote", "text", "found"), [
    ("天气很好", "今天天气\n很好。", "天气\n很好"), ("「天気」", "天気です", "天気"), ("１２３，４５６", "123,456 円", "123,456"), ("ガイド", "ｶﾞｲﾄﾞ ブック", "ｶﾞｲﾄﾞ"),
    ("使用GPU训练", "使用 GPU 训练模型", "使用 GPU 训练"), ("كتاب", "كِتَاب جديد", "كِتَاب"), ("كتاب", "كـتاب", "كـتاب"), ("registration fee", "The regis-\ntration fee", "regis-\ntration fee"),
    ("the main fee", "Pay the **main** fee", "the **main** fee"), ("‹main›", "the main fee", "main"), ("نمی\u200cدانم", "نمیدانم", "نمیدانم"), ("\ufeffmain", "main", "main"),
])  # fmt: skip
def test_quotes_are_found_whatever_readers_cannot_see(quote, text, found):
    place = MatchableText(text)
    assert occurs(quote, [place.normal])
    assert [text[start:end] for start, end in place.find(quote)] == [found]
