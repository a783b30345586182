"""AlterUserScramCredentials: each user may be named once, and has one result (KIP-554)."""

from __future__ import annotations

from collections import Counter
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

TWICE: Final = ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
UNKNOWN_MECHANISM: Final = ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
MECHANISMS: Final = frozenset((ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512))


def alter_scram_credentials(context: DecisionContext, request: AlterUserScramCredentialsRequest) -> Decision:
    counts = Counter(users_of(request))
    results: dict[str, ApiError | None] = {}
    records: list[object] = []
    for deletion in request.deletions:
        refusal = TWICE if counts[deletion.name] > 1 else refusal_of_deletion(context, deletion)
        results[deletion.name] = refusal
        if refusal is None:
            records.append(RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism))
    for upsertion in request.upsertions:
        refusal = TWICE if counts[upsertion.name] > 1 else refusal_of_upsertion(upsertion)
        results[upsertion.name] = refusal
        if refusal is None:
            records.append(upserted(upsertion))
    reply = AlterUserScramCredentialsResponse(
        results=[alteration_result(user, refusal) for user, refusal in results.items()]
    )
    return Decision(records, reply)


def users_of(request: AlterUserScramCredentialsRequest) -> list[str]:
    return [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]


def refusal_of_deletion(context: DecisionContext, deletion: ScramCredentialDeletion) -> ApiError | None:
    refusal = refusal_of(deletion.name, deletion.mechanism)
    if refusal is None and ScramKey(deletion.name, deletion.mechanism) not in context.image.scram.credentials:
        message = "Attempt to delete a user credential that does not exist"
        return ApiError(ErrorCode.RESOURCE_NOT_FOUND, message)
    return refusal


def refusal_of_upsertion(upsertion: ScramCredentialUpsertion) -> ApiError | None:
    refusal = refusal_of(upsertion.name, upsertion.mechanism)
    if refusal is not None:
        return refusal
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


def upserted(upsertion: ScramCredentialUpsertion) -> object:
    """The record of a credential.

    It holds keys derived from the salted password; the salted password itself is never written.
    """
    mechanism = ScramMechanism(upsertion.mechanism)
    salted = bytes(upsertion.salted_password)
    credential = credential_of(mechanism, salted, bytes(upsertion.salt), upsertion.iterations)
    return record_of(ScramKey(upsertion.name, mechanism), credential)


def alteration_result(user: str, refusal: ApiError | None) -> AlterUserScramCredentialsResult:
    error, message = refusal or ApiError(ErrorCode.NONE, None)
    return AlterUserScramCredentialsResult(user=user, error_code=error, error_message=message)
