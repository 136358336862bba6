"""What can go wrong with a bucket, each in one line that says what to change."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore import exceptions
from botocore.exceptions import BotoCoreError, ClientError
from s3transfer.exceptions import RetriesExceededError

from configs.store import S3StoreConfig
from infra.store.base import KeyMissingError, StoreError, StoreUnreachable

_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give this machine a role, "
    "that may list, read, write and delete there"
)
_NO_CREDENTIALS = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.ProfileNotFound,
    exceptions.TokenRetrievalError,
    exceptions.SSOError,
)
_EXPIRED = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
"""Credentials that are refused with HTTP status 400, where others get 401 or 403."""
_UNAVAILABLE = {500, 502, 503, 504}
_OTHER_REGION = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}


@contextmanager
def explained(config: S3StoreConfig) -> Iterator[None]:
    """Raise KeyMissingError where an object is not there, and StoreError where the bucket cannot be used."""
    try:
        yield
    except ClientError as error:
        if status_of(error) == 404 and code_of(error) != "NoSuchBucket":
            raise KeyMissingError(f"not in {_place(config)}") from None
        if status_of(error) in _UNAVAILABLE:
            raise _silence(config, error) from error
        raise StoreError(_refusal(config, error)) from error
    except RetriesExceededError as error:
        raise _silence(config, error.last_exception) from error
    except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
        raise _silence(config, error) from error
    except BotoCoreError as error:
        raise StoreError(_failure(config, error)) from error


def status_of(error: ClientError) -> int:
    """HTTP status of a refusal."""
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def code_of(error: ClientError) -> str:
    """S3's name for a refusal."""
    return error.response["Error"]["Code"]


def not_conditional(config: S3StoreConfig) -> StoreError:
    """For a server on which two processes could commit one step."""
    return StoreError(
        f"{_place(config)} is served without If-None-Match, so that two processes could commit one step: "
        "set store.endpoint_url to a server that has conditional writes"
    )


def _refusal(config: S3StoreConfig, error: ClientError) -> str:
    code, place = code_of(error), _place(config)
    if code == "NoSuchBucket":
        return f"{place} is not there: create it, or set store.bucket to another"
    if status_of(error) in (401, 403) or code in _EXPIRED:
        return f"{place} refuses the credentials ({code}): {_CREDENTIALS}"
    if code in _OTHER_REGION:
        return f"{place} is not in store.region {config.region} ({code}): set store.region to the bucket's"
    if status_of(error) == 501:
        return str(not_conditional(config))
    return f"{place} cannot be used ({_one_line(error)}): mend it, or set store.bucket to another"


def _failure(config: S3StoreConfig, error: BotoCoreError) -> str:
    if isinstance(error, _NO_CREDENTIALS):
        return f"{_place(config)} needs credentials ({_one_line(error)}): {_CREDENTIALS}"
    return (
        f"{_place(config)} cannot be used ({_one_line(error)}): "
        "change store.bucket, store.endpoint_url or store.region"
    )


def _silence(config: S3StoreConfig, error: Exception) -> StoreUnreachable:
    field = "store.endpoint_url" if config.endpoint_url else "store.region"
    return StoreUnreachable(
        f"{_place(config)} does not answer ({_one_line(error)}): "
        f"start the server or mend the network, or set {field} to another"
    )


def _place(config: S3StoreConfig) -> str:
    return f"store.bucket {config.bucket} at {config.endpoint_url or 'AWS'}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
