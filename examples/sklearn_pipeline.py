"""scikit-learn: text to TF-IDF to a classifier that answers with sets, and a grid search over losses."""

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from shortlist.integrations.sklearn import SetClassifier, SetRuleClassifier, coverage, predict_sets, set_size
from shortlist.sets import AverageError

ORDERS = {
    "taxi": ["a ride to the airport", "pick me up at the station", "a car to the hotel"],
    "train": ["a seat to the airport", "two seats from the station", "the next train home"],
    "hotel": ["a room near the station", "two nights at the hotel", "a room with a view"],
}
texts = [
    f"{please} {order}" for please in ("please", "I need", "can I have", "book") for o in ORDERS.values() for order in o
]
names = [name for _ in range(4) for name, orders in ORDERS.items() for _ in orders]
train, test, y_train, y_test = train_test_split(texts * 10, names * 10, test_size=0.3, random_state=0)

# Sets that miss the true answer in at most 5% of the rows, around any classifier; no rows are lost to calibration.
model = SetRuleClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression()), AverageError(0.05), cv=5)
model.fit(train, y_train)
print(f"conformal: coverage {coverage(model, test, y_test):.2f}, {set_size(model, test):.2f} answers on average")

# A model of shortlist, with the loss that covers best with 1.5 answers on average.
pipeline = make_pipeline(TfidfVectorizer(), SetClassifier(k=1.5, epochs=3, random_state=0))
losses = {"setclassifier__loss": ["cross_entropy", "lml_nll"]}
search = GridSearchCV(pipeline, losses, scoring=coverage, cv=2).fit(train, y_train)
sets = predict_sets(search, test[:1])
print(f"best loss: {search.best_params_['setclassifier__loss']}; {test[0]!r} -> {[name for name, _ in sets[0]]}")
