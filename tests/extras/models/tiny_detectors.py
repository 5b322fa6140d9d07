"""Tokenizers and models of detectors that are small enough to be made in a test, in the files that published models have."""

import json

_TEXT = (
    "passage Passage 1 2 3 4 5 6 7 8 9 0 : . , ? \" ' Briefly answer the following question Bear in mind that your response should be "
    "strictly based on passages In case do not contain necessary information to please reply with Unable given output Summarize text "
    "predict Determine if hypothesis is true premise Premise Hypothesis Green green tea Tea comes from China Japan It it brewed at "
    "80 95 degrees for two minutes and holds less caffeine than coffee Where How does come a b c d e f g h i j"
)
WORDS = _TEXT.split()
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def write_tokenizer(folder, *, limit=126, segments=True):
    """A tokenizer.json that splits at blanks and punctuation: [CLS] a [SEP] b [SEP]; and its configuration."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    ids = {token: number for number, token in enumerate([*_SPECIAL, *dict.fromkeys(WORDS)])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs, "model_max_length": limit, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def write_modernbert(folder, *, seed=0, limit=8192):
    """A random ModernBERT that classifies tokens, in the form in which LettuceDetect publishes its models."""
    import torch
    from transformers import ModernBertConfig, ModernBertForTokenClassification

    write_tokenizer(folder, limit=limit)
    torch.manual_seed(seed)
    config = ModernBertConfig(
        vocab_size=200, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, pad_token_id=0,
        cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3, num_labels=2, max_position_embeddings=8192,
        classifier_activation="gelu", global_attn_every_n_layers=2, local_attention=16,
    )  # fmt: skip
    return _saved(ModernBertForTokenClassification(config), folder)


def _saved(model, folder):
    """With wider weights than those that a training begins with: other words give another number, and all labels occur."""
    import torch

    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.normal_(0, 0.2)  # much wider ones make rounding errors grow from layer to layer
    model.save_pretrained(folder)
    return folder


def write_nli(folder, *, kind, labels, seed=0):
    """A random cross-encoder: `bert` (with segments), `roberta` (its places begin behind the padding) or `deberta-v2`."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    write_tokenizer(folder, segments=kind == "bert")
    torch.manual_seed(seed)
    names = dict(enumerate(labels))
    config = AutoConfig.for_model(
        kind, vocab_size=200, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, pad_token_id=0,
        max_position_embeddings=128, type_vocab_size=2 if kind == "bert" else 0 if kind == "deberta-v2" else 1,
        id2label=names, label2id={name: number for number, name in names.items()},
    )  # fmt: skip
    return _saved(AutoModelForSequenceClassification.from_config(config), folder)
