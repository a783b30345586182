import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.testcontainers.containers.BindMode;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.Network;
import org.testcontainers.containers.startupcheck.OneShotStartupCheckStrategy;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** The image under the Kafka modules of Testcontainers for Java. */
class KafkaContainerTest {
    private static final DockerImageName IMAGE = DockerImageName.parse(System.getenv("MOLDAU_IMAGE"));
    private static final String READ = "import kafka;"
            + "records = kafka.KafkaConsumer('orders', bootstrap_servers='broker:19092', auto_offset_reset='earliest');"
            + "print(next(records).value.decode())";

    @Test
    void theModuleForApacheKafkaStartsIt() throws Exception {
        try (KafkaContainer kafka = new KafkaContainer(IMAGE.asCompatibleSubstituteFor("apache/kafka"))) {
            kafka.start();
            exchange(kafka.getBootstrapServers());
        }
    }

    @Test
    void theModuleForConfluentPlatformStartsIt() throws Exception {
        DockerImageName image = IMAGE.asCompatibleSubstituteFor("confluentinc/cp-kafka");
        try (ConfluentKafkaContainer kafka = new ConfluentKafkaContainer(image)) {
            kafka.start();
            exchange(kafka.getBootstrapServers());
        }
    }

    @Test
    void aSecondListenerIsForTheNetworkOfContainers() throws Exception {
        DockerImageName image = IMAGE.asCompatibleSubstituteFor("apache/kafka");
        try (Network network = Network.newNetwork();
                KafkaContainer kafka = new KafkaContainer(image).withNetwork(network).withListener("broker:19092")) {
            kafka.start();
            exchange(kafka.getBootstrapServers());
            // A client in another container reads with kafka-python, which is mounted from this machine.
            try (var client = new GenericContainer<>(IMAGE)) {
                client.withNetwork(network)
                        .withFileSystemBind(System.getenv("KAFKA_PYTHON"), "/client/kafka", BindMode.READ_ONLY)
                        .withEnv("PYTHONPATH", "/client")
                        .withCommand("python3", "-c", READ)
                        .withStartupCheckStrategy(new OneShotStartupCheckStrategy())
                        .start();
                assertTrue(client.getLogs().contains("three rolls"), client.getLogs());
            }
        }
    }

    private static void exchange(String servers) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers);
        try (Admin admin = Admin.create(settings)) {
            var nodes = admin.describeCluster().nodes().get();
            assertEquals(1, nodes.size());
        }
        StringSerializer serializer = new StringSerializer();
        try (var producer = new KafkaProducer<>(settings, serializer, serializer)) {
            producer.send(new ProducerRecord<>("orders", "customer-1", "three rolls")).get();
        }
        Map<String, Object> group = Map.of(
                "bootstrap.servers", servers, "group.id", "kitchen", "auto.offset.reset", "earliest");
        StringDeserializer deserializer = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(group, deserializer, deserializer)) {
            consumer.subscribe(List.of("orders"));
            for (int tries = 0; tries < 30; tries++) {
                var records = consumer.poll(Duration.ofSeconds(1));
                if (!records.isEmpty()) {
                    assertEquals("three rolls", records.iterator().next().value());
                    return;
                }
            }
        }
        throw new AssertionError("no record came");
    }
}
