"""Settings of security: authorizer, TLS, SASL, delegation tokens."""

from __future__ import annotations

ROWS = """
authorizer.class.name  string  ""  non-null  honoured  read-only
    Class that decides which principal may do what: empty for none, or the name of Apache Kafka's standard authorizer.
super.users  string  ""  any  honoured  read-only
    Principals that may do everything, with semicolons between them, such as User:admin;User:broker.
allow.everyone.if.no.acl.found  boolean  false  any  honoured  read-only
    Whether a resource that no ACL concerns is open to every principal.
principal.builder.class  class  \
    org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder  \
    any  refused:plugin  per-broker
    Class that names the user of a connection.
security.providers  string  null  any  refused:plugin  read-only
    Java security providers.
connections.max.reauth.ms  long  0  any  honoured  read-only
    Time after which a SASL client must authenticate again.
delegation.token.secret.key  password  null  any  honoured  read-only
    Key with which delegation tokens are signed; without it there are none.
delegation.token.max.lifetime.ms  long  604800000  1..  honoured  read-only
    Longest life of a delegation token.
delegation.token.expiry.time.ms  long  86400000  1..  honoured  read-only
    Life of a delegation token unless it is renewed.
delegation.token.expiry.check.interval.ms  long  3600000  1..  honoured  read-only
    Interval of the search for expired tokens.
ssl.protocol  string  TLSv1.3  any  honoured  per-broker
    TLS version of a new context.
ssl.enabled.protocols  list  TLSv1.2,TLSv1.3  list  honoured  per-broker
    TLS versions that are taken.
ssl.cipher.suites  list  []  list  honoured  per-broker
    Cipher suites that are taken; empty for the library's own.
ssl.client.auth  string  none  one-of:required,requested,none  honoured  per-broker
    Whether a client must show a certificate.
ssl.endpoint.identification.algorithm  string  https  any  honoured  per-broker
    How the name in a certificate is checked; empty for not at all.
ssl.engine.factory.class  class  null  any  refused:plugin  per-broker
    Class that makes TLS engines.
ssl.key.password  password  null  any  honoured  per-broker
    Password of the private key.
ssl.keymanager.algorithm  string  SunX509  any  accepted:java-tls  per-broker
    Algorithm of the key manager.
ssl.keystore.certificate.chain  password  null  any  honoured  per-broker
    Certificate chain in PEM.
ssl.keystore.key  password  null  any  honoured  per-broker
    Private key in PEM.
ssl.keystore.location  string  null  any  honoured  per-broker
    File with the private key and its chain.
ssl.keystore.password  password  null  any  honoured  per-broker
    Password of that file.
ssl.keystore.type  string  JKS  any  honoured  per-broker
    Format of that file.
ssl.principal.mapping.rules  string  DEFAULT  any  honoured  read-only
    Rules from a certificate's name to a user.
ssl.provider  string  null  any  accepted:java-tls  per-broker
    Java security provider of TLS.
ssl.secure.random.implementation  string  null  any  accepted:java-tls  per-broker
    Random generator of TLS.
ssl.trustmanager.algorithm  string  PKIX  any  accepted:java-tls  per-broker
    Algorithm of the trust manager.
ssl.truststore.certificates  password  null  any  honoured  per-broker
    Trusted certificates in PEM.
ssl.truststore.location  string  null  any  honoured  per-broker
    File with the trusted certificates.
ssl.truststore.password  password  null  any  honoured  per-broker
    Password of that file.
ssl.truststore.type  string  JKS  any  honoured  per-broker
    Format of that file.
ssl.allow.dn.changes  boolean  false  any  honoured  read-only
    Whether a renewed certificate may carry another name.
ssl.allow.san.changes  boolean  false  any  honoured  read-only
    Whether a renewed certificate may lose alternative names.
sasl.enabled.mechanisms  list  GSSAPI  list  honoured  per-broker
    SASL mechanisms that listeners offer.
sasl.mechanism.inter.broker.protocol  string  GSSAPI  any  honoured  per-broker
    SASL mechanism between brokers.
sasl.mechanism.controller.protocol  string  GSSAPI  any  honoured  read-only
    SASL mechanism towards controllers.
sasl.jaas.config  password  null  any  honoured  per-broker
    Login context of SASL.
sasl.client.callback.handler.class  class  null  any  refused:plugin  read-only
    Class for the client's side of SASL.
sasl.server.callback.handler.class  class  null  any  honoured  read-only
    Kafka's own handlers of OAUTHBEARER alone: whether tokens are signed or unsecured.
sasl.server.max.receive.size  int  524288  any  honoured  read-only
    Largest SASL token that is taken.
sasl.login.class  class  null  any  refused:plugin  read-only
    Class that logs in.
sasl.login.callback.handler.class  class  null  any  honoured  read-only
    Kafka's own handlers of OAUTHBEARER alone: where this node's tokens come from.
sasl.login.connect.timeout.ms  int  null  any  honoured  read-only
    Connect timeout of the identity provider.
sasl.login.read.timeout.ms  int  null  any  honoured  read-only
    Read timeout of the identity provider.
sasl.login.refresh.window.factor  double  0.8  any  honoured  per-broker
    Part of a credential's life after which it is renewed.
sasl.login.refresh.window.jitter  double  0.05  any  honoured  per-broker
    Random part of that time.
sasl.login.refresh.min.period.seconds  short  60  any  honoured  per-broker
    Least time between two renewals.
sasl.login.refresh.buffer.seconds  short  300  any  honoured  per-broker
    Time before expiry that is kept free of renewals.
sasl.login.retry.backoff.ms  long  100  any  honoured  read-only
    First pause after a failed login.
sasl.login.retry.backoff.max.ms  long  10000  any  honoured  read-only
    Longest pause after failed logins.
sasl.kerberos.service.name  string  null  any  accepted:kerberos  per-broker
    Kerberos principal of Kafka.
sasl.kerberos.kinit.cmd  string  /usr/bin/kinit  any  accepted:kerberos  per-broker
    Path of kinit.
sasl.kerberos.min.time.before.relogin  long  60000  any  accepted:kerberos  per-broker
    Least time between two Kerberos logins.
sasl.kerberos.principal.to.local.rules  list  DEFAULT  list  accepted:kerberos  per-broker
    Rules from a Kerberos principal to a user.
sasl.kerberos.ticket.renew.jitter  double  0.05  any  accepted:kerberos  per-broker
    Random part of the renewal time of a ticket.
sasl.kerberos.ticket.renew.window.factor  double  0.8  any  accepted:kerberos  per-broker
    Part of a ticket's life after which it is renewed.
sasl.oauthbearer.allow.unverified.audience  boolean  false  any  honoured  read-only
    As in Apache Kafka 4.4: false, where it is set, wants an expected audience beside the URL of keys.
sasl.oauthbearer.allow.unverified.issuer  boolean  false  any  honoured  read-only
    As in Apache Kafka 4.4: false, where it is set, wants an expected issuer beside the URL of keys.
sasl.oauthbearer.assertion.algorithm  string  RS256  any-case:ES256,RS256  accepted:sasl  read-only
    Signature algorithm of the assertion.
sasl.oauthbearer.assertion.claim.aud  string  null  any  accepted:sasl  read-only
    Audience of the assertion.
sasl.oauthbearer.assertion.claim.exp.seconds  int  300  0..86400  accepted:sasl  read-only
    Life of the assertion.
sasl.oauthbearer.assertion.claim.iss  string  null  any  accepted:sasl  read-only
    Issuer of the assertion.
sasl.oauthbearer.assertion.claim.jti.include  boolean  false  any  accepted:sasl  read-only
    Whether the assertion carries an id.
sasl.oauthbearer.assertion.claim.nbf.seconds  int  60  0..3600  accepted:sasl  read-only
    How far before now the assertion is valid.
sasl.oauthbearer.assertion.claim.sub  string  null  any  accepted:sasl  read-only
    Subject of the assertion.
sasl.oauthbearer.assertion.file  string  null  any  accepted:sasl  read-only
    File with a ready assertion.
sasl.oauthbearer.assertion.private.key.file  string  null  any  accepted:sasl  read-only
    File with the key that signs the assertion.
sasl.oauthbearer.assertion.private.key.passphrase  password  null  any  accepted:sasl  read-only
    Passphrase of that key.
sasl.oauthbearer.assertion.template.file  string  null  any  accepted:sasl  read-only
    File with the assertion's template.
sasl.oauthbearer.client.credentials.client.id  string  null  any  honoured  read-only
    Client id at the identity provider.
sasl.oauthbearer.client.credentials.client.secret  password  null  any  honoured  read-only
    Client secret at the identity provider.
sasl.oauthbearer.clock.skew.seconds  int  30  any  honoured  read-only
    Tolerated difference of clocks.
sasl.oauthbearer.expected.audience  list  []  list  honoured  read-only
    Audiences that a token may name.
sasl.oauthbearer.expected.issuer  string  null  any  honoured  read-only
    Issuer that a token must name.
sasl.oauthbearer.jwks.endpoint.refresh.ms  long  3600000  any  honoured  read-only
    Interval at which keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms  long  100  any  honoured  read-only
    First pause after a failed fetch of keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms  long  10000  any  honoured  read-only
    Longest pause after failed fetches of keys.
sasl.oauthbearer.jwks.endpoint.url  string  null  any  honoured  read-only
    Where the identity provider's keys are.
sasl.oauthbearer.jwt.retriever.class  class  \
    org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever  \
    any  refused:plugin  read-only
    Class that fetches tokens.
sasl.oauthbearer.jwt.validator.class  class  \
    org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator  \
    any  refused:plugin  read-only
    Class that checks tokens.
sasl.oauthbearer.scope  string  null  any  honoured  read-only
    Scope that is asked for.
sasl.oauthbearer.scope.claim.name  string  scope  any  honoured  read-only
    Claim that holds the scope.
sasl.oauthbearer.sub.claim.name  string  sub  any  honoured  read-only
    Claim that holds the subject.
sasl.oauthbearer.token.endpoint.url  string  null  any  honoured  read-only
    Where tokens are fetched.
"""
