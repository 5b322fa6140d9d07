"""Answers in 14 languages: no false verdict of the rules, and what is skipped is said."""

import pytest

from ragpipe.core.citation_marks import find_marks, without_marks
from ragpipe.core.errors import Skipped
from ragpipe.core.languages import language_of
from ragpipe.core.refusals import dont_know_phrase, load_phrases, load_refusals, read_refusal
from ragpipe.core.text import list_items, sentences
from ragpipe.judge.rules.claims import extract_claims, index_sources
from ragpipe.judge.rules.rules_judge import decide
from ragpipe.judge.rules.settings import RulesSettings
from ragpipe.metrics.shared.citations import find_verbatim

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
# code: an answer with a quotation, its source; a list of three items; an answer with citation marks of 1 and 2
FORMS = {
    "de": ("In der Hausordnung steht: „Hunde sind im Lesesaal nicht erlaubt“.", "Laut Hausordnung gilt: Hunde sind im Lesesaal nicht erlaubt. Taschen bleiben im Schrank.",
           "Mitzubringen sind:\na) der Personalausweis\nb) ein Passfoto\nc) 45 Euro in bar", "Die Gebühr beträgt 45 Euro [1]. Der Ausweis gilt zwei Jahre (Quelle 2)."),
    "fr": ("Le règlement précise : « Les chiens ne sont pas admis dans la salle ».", "Selon le règlement, les chiens ne sont pas admis dans la salle. Les sacs restent au vestiaire.",
           "Il faut apporter :\n– la pièce d’identité\n– une photo\n– 45 euros en espèces", "Les frais sont de 45 euros [1]. La carte est valable deux ans (source 2)."),
    "es": ("El reglamento dice: «Los perros no pueden entrar en la sala».", "Según el reglamento, los perros no pueden entrar en la sala. Los bolsos se dejan fuera.",
           "Hay que traer:\n1.º el documento de identidad\n2.º una foto\n3.º 45 euros en efectivo", "La tarifa es de 45 euros [1]. La tarjeta vale dos años (fuente 2)."),
    "it": ("Il regolamento dice: «I cani non possono entrare nella sala».", "Secondo il regolamento i cani non possono entrare nella sala. Le borse restano fuori.",
           "Bisogna portare:\n1) il documento d’identità\n2) una foto\n3) 45 euro in contanti", "La tariffa è di 45 euro [1]. La tessera vale due anni (fonte 2)."),
    "pt": ("O regulamento diz: “Os cães não podem entrar na sala”.", "Segundo o regulamento, os cães não podem entrar na sala. As malas ficam fora.",
           "É preciso trazer:\n• o documento de identidade\n• uma fotografia\n• 45 euros em dinheiro", "A taxa é de 45 euros [1]. O cartão vale dois anos (fonte 2)."),
    "nl": ("In het reglement staat: ‘Honden mogen niet in de leeszaal komen’.", "Volgens het reglement: Honden mogen niet in de leeszaal komen. Tassen blijven buiten.",
           "Neem mee:\n- het identiteitsbewijs\n- een pasfoto\n- 45 euro contant", "De kosten zijn 45 euro [1]. De pas is twee jaar geldig (bron 2)."),
    "pl": ("Regulamin mówi: „Psy nie mogą wchodzić do czytelni”.", "Według regulaminu Psy nie mogą wchodzić do czytelni. Torby zostają w szatni.",
           "Należy przynieść:\na) dowód osobisty,\nb) zdjęcie,\nc) 45 euro w gotówce", "Opłata wynosi 45 euro [1]. Karta jest ważna dwa lata (źródło 2)."),
    "tr": ("Yönetmelikte şöyle yazıyor: “Köpekler okuma salonuna giremez”.", "Yönetmeliğe göre köpekler okuma salonuna giremez. Çantalar dışarıda kalır.",
           "Getirilmesi gerekenler:\n1- kimlik kartı\n2- bir fotoğraf\n3- nakit 45 avro", "Ücret 45 avrodur [1]. Kart iki yıl geçerlidir (kaynak 2)."),
    "ru": ("В правилах сказано: «Собаки не допускаются в читальный зал».", "Согласно правилам, собаки не допускаются в читальный зал. Сумки остаются в гардеробе.",
           "Нужно принести:\n1) паспорт\n2) фотографию\n3) 45 евро наличными", "Плата составляет 45 евро [1]. Карта действует два года (источник 2)."),
    "ar": ("تنص اللائحة على ما يلي: «لا يُسمح بدخول الكلاب إلى قاعة القراءة».", "وفقًا للائحة لا يُسمح بدخول الكلاب إلى قاعة القراءة. تبقى الحقائب في الخارج.",
           "يجب إحضار:\n١. بطاقة الهوية\n٢. صورة شخصية\n٣. ٤٥ يورو نقدًا", "الرسوم هي ٤٥ يورو [١]. البطاقة صالحة لمدة سنتين (المصدر ٢)."),
    "hi": ("नियम में लिखा है: “कुत्तों को वाचनालय में आने की अनुमति नहीं है”।", "नियम के अनुसार कुत्तों को वाचनालय में आने की अनुमति नहीं है। थैले बाहर रहते हैं।",
           "साथ लाएँ:\n(क) पहचान पत्र\n(ख) एक फ़ोटो\n(ग) 45 यूरो नकद", "शुल्क 45 यूरो है [1]। कार्ड दो साल तक मान्य है (स्रोत 2)।"),
    "zh": ("规定写道：“阅览室内不得携带宠物入内”。", "根据规定，阅览室内不得携带宠物入内。包请存放在外面。",
           "请携带：\n（1）身份证\n（2）一张照片\n（3）45欧元现金", "费用为每年45欧元【1】。借书卡有效期为两年（来源2）。"),
    "ja": ("規則には「閲覧室にペットを連れて入ることはできません」とあります。", "規則では、閲覧室にペットを連れて入ることはできません。鞄は外に置きます。",
           "持ち物：\n・身分証明書\n・写真一枚\n・現金45ユーロ", "料金は年間45ユーロです［1］。カードの有効期間は二年です（出典2）。"),
    "ko": ("규정에는 “열람실에 반려동물을 데리고 들어올 수 없습니다”라고 적혀 있습니다.", "규정에 따르면 열람실에 반려동물을 데리고 들어올 수 없습니다. 가방은 밖에 둡니다.",
           "준비물:\n가. 신분증\n나. 사진 한 장\n다. 현금 45유로", "요금은 매년 45유로입니다 [1]. 카드는 2년 동안 유효합니다 (출처 2)."),
}  # fmt: skip
ENGLISH = "The fee for the card is 45 euros per year. Dogs are not allowed in the reading room. Bring one photograph and 45 euros in cash."
PATTERNS, PHRASES = load_refusals("refusals.v3"), load_phrases("dont_know.v3")
SETTINGS = RulesSettings()


def verdicts(answer, *sources):
    """Those on the claims of an answer; one reason where there is none."""
    try:
        findings = decide(extract_claims(answer), index_sources(sources), SETTINGS)
    except Skipped as skipped:
        return [str(skipped)]
    return ["supported" if f.supported else "contradicted" if f.contradicted else "not supported" for f in findings]


def verdict(claim, *sources):
    return verdicts(claim, *sources)[0]


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


@pytest.mark.parametrize("code", FORMS)
def test_quotations_lists_and_citations(code):
    quoting, source, listing, citing = FORMS[code]
    assert [span.quoted for span in find_verbatim(quoting, source, 6).spans] == [True]
    assert verdicts(quoting, source) == ["supported"]
    assert len(list_items(listing)) == 3
    assert not any(item[0] in ").、.º" for item in list_items(listing))
    assert verdicts(listing, listing.partition("\n")[2]) == ["supported"] * 3
    assert [mark.numbers for mark in find_marks(citing)] == [(1,), (2,)]
    assert verdicts(citing, without_marks(citing)) == ["supported"] * 2
    assert set(verdicts(citing, without_marks(citing).replace("45", "54").replace("٤٥", "٥٤"))) <= {
        "contradicted", "supported", "language_not_covered",
    }  # fmt: skip


@pytest.mark.parametrize("code", FORMS)
def test_an_answer_in_another_language_than_its_sources_gets_no_verdict(code):
    for answer in (LANGUAGES[code][1], *FORMS[code][::2]):
        assert verdicts(answer, ENGLISH) == ["language_not_covered"]
    for answer in ENGLISH.split(". "):
        assert verdicts(answer, LANGUAGES[code][1], FORMS[code][1]) == ["language_not_covered"]


@pytest.mark.parametrize("answer", ["Dokumenten innehåller ingen information om avgiften.", "En tiedä tätä.", "Nu știu, documentele nu conțin asta.",
                                    "У документах немає цієї інформації.", "اسناد این اطلاعات را ندارند.", "Δεν γνωρίζω την απάντηση."])  # fmt: skip
def test_a_language_without_phrases_gets_no_verdict(answer):
    assert not read_refusal(answer, PATTERNS).covered


@pytest.mark.parametrize(
    "answer", ["Paris", "42", "No, the shop is closed.", "Beyoncé", "Simmer for 15 minutes.", "Passage 1", "It rained.", "E. E. Cummings",
               "I am a researcher.", "Use a-z and A-Z.", "Per diem rates apply.", "Las Vegas", "EU and NA: May 2013", "Step-growth (e.g. condensation)",
               "Leonardo da Vinci", "Charles de Gaulle", "El Niño", "São Paulo", "Daniel Johnston, 1990, lo-fi, born in Sacramento"]
)  # fmt: skip
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
("الرسوم هي ١٢٣ يورو.","الرسوم هي 123 يورو."),("الرسوم هي ١٬٢٣٤ يورو.","الرسوم هي 1234 يورو."),("शुल्क १२३ रुपये है।","शुल्क 123 रुपये है।"),("Der Preis beträgt 1.234,5 Euro.","Der Preis beträgt 1234,5 Euro."),("Le prix est de 1 234,5 euros.","Le prix est de 1234,5 euros."),("Le prix est de 1\u202f234,5 euros.","Le prix est de 1 234,5 euros."),
("The price is 1.234,5 euros.","The price is 1,234.5 euros."),("费用为一万元。","费用为10000元。"),("费用为1万元。","费用为10,000元。"),("料金は１万円です。","料金は10,000円です。"),("요금은 3만 원입니다.","요금은 30,000원입니다."),("It costs 1,23,456 rupees.","It costs 123456 rupees."),("It costs 1,23,456 rupees.","It costs 123,456 rupees."),("It costs ₹1.5 crore in total.","It costs ₹1,50,00,000 in total."),("शुल्क 1,23,456 रुपये है।","शुल्क 123456 रुपये है।"),
("Der Verein hat 1.234 Mitglieder.","Der Verein hat 1234 Mitglieder."),("Die Anlage kostet 2,5 Mio. Euro.","Die Anlage kostet 2.500.000 Euro."),("La ciudad tiene 3,2 millones de habitantes.","La ciudad tiene 3.200.000 habitantes."),("Город имеет 1,2 млн жителей.","Город имеет 1 200 000 жителей."),("Miasto ma 1,2 mln mieszkańców.","Miasto ma 1 200 000 mieszkańców."),("Şehirde 1,2 milyon kişi yaşıyor.","Şehirde 1.200.000 kişi yaşıyor."),
("La ville compte quatre-vingts musées.","La ville compte 80 musées."),("Die Stadt hat zwanzig Museen.","Die Stadt hat 20 Museen."),("Es dauert dreißig Tage.","Es dauert 30 Tage."),("La oficina tiene veinte empleados.","La oficina tiene 20 empleados."),("В городе двадцать музеев.","В городе 20 музеев."),("Срок составляет тридцать дней.","Срок составляет 30 дней."),("It opened in the 1990s in Berlin.","It opened in the 1990's in Berlin."),
("Die Rückgabe ist in 14 Tagen möglich.","Die Rückgabe ist in vierzehn Tagen möglich."),("Il termine è di trenta giorni.","Il termine è di 30 giorni."),("O prazo é de trinta dias.","O prazo é de 30 dias."),("De termijn is dertig dagen.","De termijn is 30 dagen."),("Termin wynosi trzydzieści dni.","Termin wynosi 30 dni."),("Süre otuz gündür.","Süre 30 gündür."),("المدة ثلاثون يومًا.","المدة 30 يومًا."),("अवधि तीस दिन है।","अवधि 30 दिन है।"),("期限为三十天。","期限为30天。"),("期限は三十日です。","期限は30日です。"),("기간은 삼십 일입니다.","기간은 30일입니다."),
("It weighs 1.5 kg in total.","It weighs 1500 g in total."),("The hall seats 1½ thousand people.","The hall seats 1,500 people."),("The tower is 1.000 m high.","The tower is 1000 m high."),("Der Turm ist 0,5 km hoch.","Der Turm ist 0.5 km hoch."),("The rate is .5 percent now.","The rate is 0.5 percent now."),("Its area is 2.000,50 m² now.","Its area is 2000.5 m² now."),("The year was MMXXIV then.","The year was 2024 then."),("Room IV is open daily.","Room 4 is open daily."),("The share is 0,75 now.","The share is 75% now."),("The share is three quarters now.","The share is 75% now."),("Half of the seats are free.","50% of the seats are free."),("It costs a dozen euros.","It costs 12 euros."),("It started at half past nine.","It started at 9:30."),("Es beginnt um halb zehn.","Es beginnt um 9:30 Uhr."),("Il commence à 9h30.","Il commence à 9:30."),("Начало в 9.30.","Начало в 9:30."),("Beginn ist um 9.30 Uhr.","Beginn ist um 9:30 Uhr."),("Закон от 15 марта 2024 г.","Закон от 15.03.2024."),("法律于2024年3月15日通过。","法律于2024-03-15通过。"),("법은 2024년 3월 15일에 통과되었다.","법은 2024-03-15에 통과되었다."),("القانون صدر في ١٥ مارس ٢٠٢٤.","القانون صدر في 15/03/2024."),("The fee is EUR 45,- in total.","The fee is 45 euros in total."),("The fee is 45.00 euros now.","The fee is 45,00 euros now."),("The fee is CHF 1'234.50 now.","The fee is CHF 1234.50 now."),("It has 1٬234٫5 units now.","It has 1234.5 units now."),("它有1,2345个。","它有12345个。"),("料金は壱万円です。","料金は10000円です。"),("料金は3,5千円です。","料金は3500円です。"),("人口は1億2000万人です。","人口は120,000,000人です。"),("人口约为1.4亿。","人口约为1亿4000万。"),("The temperature is −5 °C today.","The temperature is -5 °C today."),("It took 90 minutes to finish.","It took 1.5 hours to finish."),("It grew by 5 per cent.","It grew by 5%."),("Der Anteil liegt bei 5 v. H.","Der Anteil liegt bei 5 %."),

]  # fmt: skip
OTHER = [
    ("Es dauert 30 Tage.", "Es dauert zwanzig Tage."), ("It took 90 minutes to finish.", "It took 1.6 hours to finish."),
    ("人口は1億2000万人です。", "人口は1億3000万人です。"), ("The rate is 0.5 percent now.", "The rate is .6 percent now."),
    ("La ville compte 81 musées.", "La ville compte quatre-vingts musées."), ("It costs 13 euros.", "It costs a dozen euros."),
    ("The shop opens at 2:30 am.", "The shop opens at 2:30 pm."), ("Use version 3.1 of the library.", "Use version 3.10 of the library."),
    ("The postcode is 1067 for the office.", "The postcode is 01067 for the office."), ("The rate rose by 5%.", "The rate rose by 5 percentage points."),
    ("All staff including interns receive it.", "All staff except interns receive it."), ("Die Gebühr wird erstattet.", "Die Gebühr wird nicht erstattet."),
    ("A delegate receives 6,000 tokens a month.", "A delegate receives 3,000 tokens a month, for 6 months."),
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
                                             ("Im 19. Jahrhundert war es so. Heute nicht.", 2),
    ("Dr. Müller kommt am 3. Mai. Er bleibt.", 2), ("Gemäß Art. 5 Abs. 2 gilt das. Ausnahmen gibt es nicht.", 2), ("M. Dupont est arrivé. Il est reparti.", 2),
    ("El Sr. García llegó tarde. Se fue pronto.", 2), ("Il dott. Rossi è qui. Torna domani.", 2), ("O Sr. Silva chegou. Saiu cedo.", 2),
    ("De heer dr. Jansen komt. Hij blijft.", 2), ("Prof. Nowak przyszedł. Wyszedł późno.", 2), ("Saat 9.30'da açılır. Geç kalmayın.", 2),
    ("В 1990 г. он уехал. Потом вернулся.", 2), ("А. С. Пушкин родился в Москве. Он поэт.", 2), ("السعر 3.5 دولار. هذا كل شيء.", 2),
    ("他说：“我来了。”然后走了。", 2), ("「はい。」と彼は言った。", 1), ("가격은 3.5달러입니다. 쌉니다.", 2)])  # fmt: skip
def test_sentences(text, count):
    assert len(sentences(text)) == count
