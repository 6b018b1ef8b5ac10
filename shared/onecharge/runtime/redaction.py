"""Takes secrets and personal data out of texts that others write: messages of exceptions, and Stripe's answers."""

import re
import traceback

REDACTED = "[redacted]"

# Linear in the text: each alternative begins where no other could, or has a bounded length.
_SECRET = re.compile(
    # Stripe's API keys, whole or with asterisks as Stripe's own errors show them, and signing secrets.
    r"(?:sk|rk)_(?:live|test)_[0-9A-Za-z_*]+|whsec_[0-9A-Za-z+/=_]+"
    # The client secret of a PaymentIntent or SetupIntent.
    r"|(?:pi|seti)_[0-9A-Za-z]+_secret_[0-9A-Za-z_]+"
    # A JSON Web Token: two parts that begin as the Base64 of a JSON object, and perhaps a signature.
    r"|(?<![0-9A-Za-z_-])eyJ[0-9A-Za-z_-]+\.eyJ[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]*)?"
    # An e-mail address.
    r"|(?<![0-9A-Za-z_.+-])[0-9A-Za-z_.+-]{1,64}@[0-9A-Za-z-]{1,63}(?:\.[0-9A-Za-z-]{1,63})+"
    # 14 to 19 digits, as a card number has, in groups or not, but no part of a UUID. Nothing that is logged on purpose
    # has as many: an AWS account has 12, a time in milliseconds 13.
    r"|(?<![0-9A-Za-z-])\d(?:(?:[ -]|%20)?\d){13,18}(?![0-9A-Za-z-])"
)


def redacted(text: str) -> str:
    """The text without API keys, signing secrets, client secrets, tokens, e-mail addresses and card numbers."""
    return _SECRET.sub(REDACTED, text)


class FailedInvocation(Exception):
    """An error whose own message may not be shown as it is: it names the type, and has the message redacted."""


def presentable(error: Exception) -> Exception:
    """Returns the error, or one in its place if its message or that of an error before it has to be redacted.

    Lambda logs the message of an error that a handler raises, and returns it to the invoker.
    """
    whole = "".join(traceback.format_exception(error))
    return error if redacted(whole) == whole else FailedInvocation(redacted(f"{type(error).__name__}: {error}"))
