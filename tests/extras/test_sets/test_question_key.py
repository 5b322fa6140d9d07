"""Which questions are the same, which are near, and which are neither."""

import pytest

from ragpipe.extras.test_sets.log_cases import NearDuplicates
from ragpipe.extras.test_sets.log_scan import normalised_text


@pytest.mark.parametrize(("text", "normalised"), [
    ("  How   are\tyou?\n", "how are you"),
    ("HOW ARE YOU", "how are you"),
    ("«Wo ist die Straße?»", "wo ist die strasse"),
    ("\uff37\uff28\uff39\uff1f", "why"),  # full-width letters
    ("cafe\u0301", "caf\u00e9"),
    ("\u00bfQu\u00e9 pasa?!", "qu\u00e9 pasa"),
    ("What is C++?", "what is c++"),
    ("is 3.5 > 2?", "is 3.5 > 2"),
    ("a\u00a0b", "a b"),
    ("???", "???"),
])  # fmt: skip
def test_a_text_is_normalised(text: str, normalised: str) -> None:
    assert normalised_text(text) == normalised


NEAR = [
    ("how do i return the old lamp", "how do i retrun the old lamp"),
    ("how long is the warranty", "how long is the waranty"),
    ("how long is the warranty", "how long is the warrannty"),
    ("how long is the warranty", "how long is the warrenty"),
    ("where can i track my order today", "where can i trakc my order today"),
    ("how do i return the old lamp", "how do i return old lamp"),
    ("what does the garden chair cost", "what do the garden chairs cost"),
    ("how can i change my delivery address", "how can i change my delivery adress"),
    ("how can i change my delivery address", "please how can i change my delivery address"),
    ("how can i change my delivery address for an order", "hello how can i change my delivery address for the order"),
    ("is the invoice sent with the parcel", "is the invoice sent with the parcels"),
    ("which documents does the application need", "which document does the aplication need"),
    ("what is the delivery time to fennick in the summer", "what is the delivery time to fennick in summer"),
    ("where do i find the installation manual", "where do i find the instalation manual, please"),
    ("wie lange dauert die garantie auf lampen", "wie lange dauert die garantei auf lampen"),
    ("combien de temps dure la garantie", "combien de temps dure la garrantie"),
    ("can the subscription be cancelled online", "can the subscription be canceled online"),
    ("can the subscription be cancelled by telephone", "can the subscripton be cancelled by telephonne"),
    ("what is the delivery address of the warehouse", "what is delivery address of the warehouse"),
    ("where is the nearest repair shop in silt", "hi where is the nearest repair shop in silt"),
]
OTHER = [
    ("how do i enable the two factor login for a team", "how do i disable the two factor login for a team"),
    ("can the order be changed before it was dispatched", "can the order be changed after it was dispatched"),
    ("is smoking allowed in the rented apartment", "is smoking not allowed in the rented apartment"),
    ("what is the maximum order value for a customer", "what is the minimum order value for a customer"),
    ("how do i import the contacts of my customers", "how do i export the contacts of my customers"),
    ("is inpatient treatment covered by the insurance", "is outpatient treatment covered by the insurance"),
    ("what is the weight of the kestrel with batteries", "what is the weight of the wren with batteries"),
    ("what does the employer pay for the insurance", "what does the employee pay for the insurance"),
    ("who is the payer of the monthly allowance", "who is the payee of the monthly allowance"),
    ("how do i increase the limit of my credit card", "how do i decrease the limit of my credit card"),
    ("what did it cost in 2023", "what did it cost in 2024"),
    ("what does plan a cost per month", "what does plan b cost per month"),
    ("can i travel with the ticket on sundays", "can i travel without the ticket on sundays"),
    ("are all of the parcels insured by the sender", "are some of the parcels insured by the sender"),
    ("which fees are included in the monthly rent", "which fees are excluded in the monthly rent"),
    ("is the contract with the supplier legal in france", "is the contract with the supplier illegal in france"),
    ("how many active customers do we have in silt", "how many inactive customers do we have in silt"),
    ("is the device certified as a typical sensor", "is the device certified as atypical sensor"),
    ("what is paid by the tenant every month", "what is unpaid by the tenant every month"),
    ("can you ship the parcel to austria this week", "can you ship the parcel to australia this week"),
    ("do you deliver on mondays in the winter season", "do you deliver on fridays in the winter season"),
    ("what happens to the data in the first year", "what happens to the data in the third year"),
    ("do i have to sign the contract with the bank", "do i not have to sign the contract with the bank"),
    ("can i return the lamp that i bought in may", "can i never return the lamp that i bought in may"),
    ("is the shop open at noon on public holidays", "is the shop open by noon on public holidays"),
    ("how is hypertension treated in the elderly", "how is hypotension treated in the elderly"),
    ("is the value > the limit of the first alarm", "is the value < the limit of the first alarm"),
    ("why is it that c++ is used for the drivers", "why is it that c# is used for the drivers"),
    ("what must the buyer tell the seller of the flat", "what must the seller tell the buyer of the flat"),
    ("where is order 4711 of last week", "where is order 4711 of lats week"),  # four letters are no sign of a typing error
    ("\u5982\u4f55\u542f\u7528\u8bbe\u5907\u7684\u8b66\u62a5\u529f\u80fd\u5462", "\u5982\u4f55\u7981\u7528\u8bbe\u5907\u7684\u8b66\u62a5\u529f\u80fd\u5462"),  # enable, disable
    ("who", "why"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "is_near"), [*((*pair, True) for pair in NEAR), *((*pair, False) for pair in OTHER)])
def test_near_questions(first: str, second: str, is_near: bool) -> None:
    for one, other in ((first, second), (second, first)):
        near = NearDuplicates(0.8 if is_near else 0.85)
        assert near.kept_before(one) is None
        assert near.kept_before(other) == (one if is_near else None)
        assert near.kept_before(one) == one


def test_the_threshold_counts_too() -> None:
    near = NearDuplicates(0.9)
    assert [near.kept_before(text) for text in ("return a lamp", "please return a lamp")] == [None, None]


def test_two_words_that_many_questions_have_are_no_typing_error() -> None:
    """In many questions `trial` and `trail` are words; with one question each, one of them is taken for the other."""
    near = NearDuplicates(0.9)
    for text in (
        "how long is the free trial of the app",
        "is a trial free",
        "who ended the trial",
        "a map of every trail",
        "which trail is steep",
    ):
        assert near.kept_before(text) is None
    assert near.kept_before("how long is the free trail of the app") is None
    assert near.kept_before("how long is the free trlal of the app") == "how long is the free trial of the app"
