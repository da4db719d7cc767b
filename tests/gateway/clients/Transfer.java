import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

public class Transfer {
    static boolean isDone(String bank, String id) {
        try (Connection books = DriverManager.getConnection(bank);
                PreparedStatement find = books.prepareStatement("SELECT FROM transfer WHERE id = ?")) {
            find.setString(1, id);
            return find.executeQuery().next();
        } catch (SQLException away) {
            throw new IllegalStateException(away);  // the gateway asks again
        }
    }

    static void withdraw(String bank, String id) throws SQLException {
        try (Connection books = DriverManager.getConnection(bank);
                PreparedStatement pay = books.prepareStatement(
                    "UPDATE account SET balance = balance - 100 WHERE owner = 'anna'");
                PreparedStatement note = books.prepareStatement("INSERT INTO transfer VALUES (?)")) {
            books.setAutoCommit(false);
            pay.executeUpdate();
            note.setString(1, id);
            note.executeUpdate();
            books.commit();
        }
    }

    public static void main(String[] given) throws Exception {
        String gateway = given[0], bank = given[1], id = given[2];
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        try (Producer producer = provider.newProducerBuilder()
                .setClientConfiguration(ClientConfiguration.newBuilder().setEndpoints(gateway).enableSsl(false).build())
                .setTopics("transfers")
                .setTransactionChecker(half -> isDone(bank, half.getKeys().iterator().next())
                    ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK)
                .build()) {
            Message message = provider.newMessageBuilder().setTopic("transfers").setKeys(id)
                .setBody("100 to ben".getBytes()).build();
            Transaction transaction = producer.beginTransaction();
            producer.send(message, transaction);
            try {
                withdraw(bank, id);
            } catch (SQLException failed) {
                transaction.rollback();
                throw failed;
            }
            transaction.commit();
        }
    }
}
