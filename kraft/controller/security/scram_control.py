"""AlterUserScramCredentials: a request may name each user once, and the result of a user is its first error
(KIP-554)."""

from __future__ import annotations

from typing import Final

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import ApiError, Decision
from moldau.kraft.image.security.scram_credentials import ScramKey, record_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.protocol.records.metadata import RemoveUserScramCredentialRecord
from moldau.security.sasl.scram.credential import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, credential_of

DUPLICATE_CREDENTIAL: Final = ApiError(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)
UNKNOWN_MECHANISM: Final = ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
MECHANISMS: Final = frozenset((ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512))


def alter_scram_credentials(context: DecisionContext, request: AlterUserScramCredentialsRequest) -> Decision:
    made: dict[str, object] = {}
    alterations: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for alteration in alterations:
        if alteration.name not in made:
            made[alteration.name] = record_or_error(context, alteration)
        elif not isinstance(made[alteration.name], ApiError):
            made[alteration.name] = DUPLICATE_CREDENTIAL
    reply = AlterUserScramCredentialsResponse(results=[alteration_result(user, each) for user, each in made.items()])
    return Decision([each for each in made.values() if not isinstance(each, ApiError)], reply)


def record_or_error(context: DecisionContext, alteration: ScramCredentialDeletion | ScramCredentialUpsertion) -> object:
    refusal = refusal_of(alteration.name, alteration.mechanism)
    if refusal is not None:
        return refusal
    if isinstance(alteration, ScramCredentialUpsertion):
        return refusal_of_upsertion(alteration) or upserted_credential(alteration)
    if ScramKey(alteration.name, ScramMechanism(alteration.mechanism)) not in context.image.scram.credentials:
        return ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(name=alteration.name, mechanism=alteration.mechanism)


def refusal_of_upsertion(upsertion: ScramCredentialUpsertion) -> ApiError | None:
    if upsertion.iterations < ITERATIONS_MIN:
        return unacceptable_credential("Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        return unacceptable_credential("Too many iterations")
    if not upsertion.salted_password:
        # DIVERGES: Apache Kafka answers UNKNOWN_SERVER_ERROR to a client that sends no salted password.
        return unacceptable_credential("The salted password must not be empty")
    return None


def refusal_of(user: str, mechanism: int) -> ApiError | None:
    if not user:
        return unacceptable_credential("Username must not be empty")
    return None if mechanism in MECHANISMS else UNKNOWN_MECHANISM


def unacceptable_credential(message: str) -> ApiError:
    return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)


def upserted_credential(upsertion: ScramCredentialUpsertion) -> object:
    """The record that stores a credential.

    It has keys derived from the salted password; the salted password itself is never written.
    """
    mechanism = ScramMechanism(upsertion.mechanism)
    salted = bytes(upsertion.salted_password)
    credential = credential_of(mechanism, salted, bytes(upsertion.salt), upsertion.iterations)
    return record_of(ScramKey(upsertion.name, mechanism), credential)


def alteration_result(user: str, made: object) -> AlterUserScramCredentialsResult:
    error, message = made if isinstance(made, ApiError) else ApiError(ErrorCode.NONE, None)
    return AlterUserScramCredentialsResult(user=user, error_code=error, error_message=message)
