"""The answers that a judge can give, by what they are about; `answer_type.py` has their base."""
