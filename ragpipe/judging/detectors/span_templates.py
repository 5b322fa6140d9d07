"""The text around the passages with which LettuceDetect was trained, word for word: another text gives other numbers.

One template per language, with and without a question, copied from LettuceDetect, whose licence is below.
"""

# MIT License
#
# Copyright (c) 2025 KR Labs
#
# Permission is hereby granted, free of charge, to any person obtaining a copy
# of this software and associated documentation files (the "Software"), to deal
# in the Software without restriction, including without limitation the rights
# to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
# copies of the Software, and to permit persons to whom the Software is
# furnished to do so, subject to the following conditions:
#
# The above copyright notice and this permission notice shall be included in all
# copies or substantial portions of the Software.
#
# THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
# IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
# FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
# AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
# LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
# OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
# SOFTWARE.

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SpanTemplate(NamedTuple):
    """The word before a passage's number, and the texts for passages with a question and without one."""

    passage: str
    asked: str
    summary: str

    def fill(self, question: str, passages: Sequence[str]) -> str:
        """The model's first text: the passages, numbered from 1, in the template; an empty question is none."""
        context = "\n".join(f"{self.passage} {number}: {text}" for number, text in enumerate(passages, 1))
        if not question:
            return _filled(self.summary, {"text": context})
        return _filled(self.asked, {"question": question, "num_passages": str(len(passages)), "context": context})


def _filled(template: str, values: dict[str, str]) -> str:
    """The template with each `${name}` replaced once; what a value holds is never replaced."""
    pieces = template.split("${")
    rest = (piece.partition("}") for piece in pieces[1:])
    return pieces[0] + "".join(values[name] + text for name, _, text in rest)


TEMPLATES = {
    "en": SpanTemplate(
        "passage",
        "Briefly answer the following question:\n"
        "${question}\n"
        "Bear in mind that your response should be strictly based on the following ${num_passages} passages:\n"
        "${context}\n"
        'In case the passages do not contain the necessary information to answer the question, please reply with: "Unable to answer based on given passages."\n'
        "output:",
        "Summarize the following text:\n${text}\noutput:",
    ),
    "de": SpanTemplate(
        "Passage",
        "Beantworte die folgende Frage kurz:\n"
        "${question}\n"
        "Beachte, dass deine Antwort nur auf den folgenden ${num_passages} Passagen basieren soll:\n"
        "${context}\n"
        'Falls die Passagen nicht die notwendigen Informationen zur Beantwortung der Frage enthalten, antworte bitte mit: "Kann aufgrund der gegebenen Passagen nicht beantwortet werden."\n'
        "Ausgabe:",
        "Fasse den folgenden Text zusammen:\n${text}\nAusgabe:\n",
    ),
    "fr": SpanTemplate(
        "passage",
        "Réponds brièvement à la question suivante :\n"
        "${question}\n"
        "Note que ta réponse doit être basée uniquement sur les ${num_passages} passages suivants :\n"
        "${context}\n"
        'Si les passages ne contiennent pas les informations nécessaires pour répondre à la question, réponds s\'il te plaît par : "Impossible de répondre sur la base des passages fournis."\n'
        "Sortie : ",
        "Résume le texte suivant :\n${text}\nSortie : ",
    ),
    "es": SpanTemplate(
        "pasaje",
        "Responde a la siguiente pregunta brevemente:\n"
        "${question}\n"
        "Ten en cuenta que tu respuesta debe basarse únicamente en los siguientes ${num_passages} pasajes:\n"
        "${context}\n"
        'Si los pasajes no contienen la información necesaria para responder a la pregunta, por favor responde con: "No se puede responder con base en los pasajes proporcionados."\n'
        "Salida: ",
        "Resume el siguiente texto:\n${text}\nSalida: ",
    ),
    "it": SpanTemplate(
        "brano",
        "Rispondi alla seguente domanda in modo breve:\n"
        "${question}\n"
        "Tieni presente che la tua risposta deve basarsi solo sui seguenti ${num_passages} passaggi:\n"
        "${context}\n"
        'Se i passaggi non contengono le informazioni necessarie per rispondere alla domanda, per favore rispondi con: "Non può essere risposto in base ai passaggi forniti."\n'
        "Risposta:\n",
        "Riassumi il seguente testo:\n${text}\nRisposta: ",
    ),
    "pl": SpanTemplate(
        "fragment",
        "Zwięźle odpowiedz na następujące pytanie:\n"
        "${question}\n"
        "Pamiętaj, że Twoja odpowiedź powinna opierać się wyłącznie na następujących ${num_passages} fragmentach:\n"
        "${context}\n"
        'Jeśli fragmenty nie zawierają informacji niezbędnych do udzielenia odpowiedzi na pytanie, odpowiedz: "Nie można odpowiedzieć na podstawie podanych fragmentów."\n'
        "output: ",
        "Streść następujący tekst:\n${text}\nWynik: ",
    ),
    "cn": SpanTemplate(
        "段落",
        "请简短回答以下问题：\n"
        "${question}\n"
        "请注意，您的回答应严格基于以下${num_passages}段落：\n"
        "${context}\n"
        '如果段落中不包含回答问题所需的信息，请回复："基于给定段落无法回答。"\n'
        "输出：\n",
        "请总结以下文本：\n${text}\n输出：\n",
    ),
    "hu": SpanTemplate(
        "szövegrészlet",
        "Röviden válaszolj az alábbi kérdésre:\n"
        "${question}\n"
        "Vedd figyelembe, hogy a válaszod kizárólag az alábbi ${num_passages} szövegrészletre támaszkodjon:\n"
        "${context}\n"
        'Ha a szövegrészletek nem tartalmazzák a kérdés megválaszolásához szükséges információt, válaszolj így: "Nem tudok válaszolni a megadott szövegrészletek alapján."\n'
        "output:",
        "Foglalja össze az alábbi szöveget:\n${text}\noutput:\n\n\n",
    ),
}
